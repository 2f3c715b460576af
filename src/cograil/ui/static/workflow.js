// The page of a workflow: its graph, without any states.
import "./app.js";
import { Graph } from "./graph.js";

new Graph(document.getElementById("graph"), JSON.parse(document.getElementById("graph-data").textContent));
