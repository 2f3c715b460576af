"""Every row of bad input that is about paths, files and archives of artifacts has a test, or a reason.

The rows are of the matrix, which speaks of doors of its own. Here all of them come through `/v1/jobs` and the
nodes of type container, whose API is older than the matrix and wins:

- a bad path is a 400 with `{"error"}` that names the field, not a 422;
- what is found out later fails its artifact, whose `error` begins with the code that the matrix names;
- links and devices in archives are skipped and told, never made and never followed;
- extraction joins directories and replaces files; `write` replaces what is there.
"""

from __future__ import annotations

import pytest
from tests.support.named_tests import TESTS, missing_tests, names_in_file

ROWS = [f"B{number}" for number in range(91, 125)]

WORKSPACE, CHANGES = "unit/test_workspace.py", "unit/test_workspace_changes.py"
EXTRACTING, CORPUS = "unit/test_workspace_extract.py", "support/hostile_archives.py"
REQUESTS, MOVING = "unit/test_container_requests.py", "unit/test_artifact_transfer.py"
WIRE, ARTIFACTS = "apps/containers/test_container_api.py", "apps/containers/test_container_job_artifacts.py"

REFUSED = [
    f"{WORKSPACE}::test_a_path_that_leads_elsewhere_is_refused",
    f"{REQUESTS}::test_no_path_of_any_artifact_leads_elsewhere",
    f"{WIRE}::test_artifacts_that_could_not_be_carried_out_are_400",
]
PLAIN = [
    f"{WORKSPACE}::test_a_plain_path_is_its_steps",
    f"{REQUESTS}::test_a_plain_name_is_one_and_is_not_decoded",
]

# Beside the corpus of archives, which names its rows itself.
TESTED: dict[str, list[str]] = {
    "B91": REFUSED,  # `.` is the workspace where one may be unpacked into, packed or listed
    "B92": [*REFUSED, *PLAIN],
    "B93": REFUSED,
    "B94": REFUSED,
    # Paths are JSON and not URLs: nothing is decoded, so `%2e` is a plain name; invalid UTF-8 is a 400.
    "B95": [*PLAIN, f"{WIRE}::test_bodies_that_are_no_json_or_too_large"],
    # A write is one file: only archives hold several names.
    "B96": [f"{EXTRACTING}::test_names_that_are_spelled_alike_elsewhere_are_all_there"],
    # Nothing of ours is called `.part`, so that is a plain name.
    "B97": [*REFUSED, *PLAIN],
    # A list is one of paths, as the API has it: the link is named, without its type.
    "B98": [
        f"{WORKSPACE}::test_only_regular_files_inside_are_read",
        f"{WORKSPACE}::test_files_are_listed_in_order_without_what_is_left_out",
        f"{WORKSPACE}::test_a_directory_is_archived_without_links_and_without_itself",
        f"{MOVING}::test_files_behind_a_link_are_neither_sent_nor_read",
        f"{ARTIFACTS}::test_links_that_a_container_made_lead_nowhere",
    ],
    "B99": [
        f"{WORKSPACE}::test_a_directory_that_is_swapped_for_a_link_all_the_time_never_leads_out",
        f"{CHANGES}::test_a_directory_that_becomes_a_link_is_not_read_through",
        f"{EXTRACTING}::test_a_target_behind_a_link_is_refused",
    ],
    "B100": [
        f"{WORKSPACE}::test_only_regular_files_inside_are_read",
        f"{WORKSPACE}::test_devices_are_not_read",
        f"{ARTIFACTS}::test_whatever_a_container_leaves_no_artifact_hangs_or_ends_the_job",
    ],
    "B101": [
        f"{WORKSPACE}::test_a_sparse_giant_is_refused_by_its_apparent_size",
        f"{MOVING}::test_a_sparse_giant_is_not_sent",
        f"{ARTIFACTS}::test_whatever_a_container_leaves_no_artifact_hangs_or_ends_the_job",
    ],
    # Write replaces; there is no `overwrite`, which is refused by name.
    "B102": [
        f"{WORKSPACE}::test_a_write_replaces_a_file_but_not_a_directory",
        f"{WORKSPACE}::test_a_write_replaces_a_link_and_does_not_follow_it",
        f"{REQUESTS}::test_unknown_fields_of_artifacts_are_refused_by_name",
    ],
    # There are no checksums; `sha256` is refused by name, so nobody believes that it was checked.
    "B103": [f"{REQUESTS}::test_unknown_fields_of_artifacts_are_refused_by_name"],
    "B105": [
        f"{ARTIFACTS}::test_an_archive_that_leads_out_fails_the_job_and_one_with_links_comes_without_them"
    ],
    "B106": [f"{EXTRACTING}::test_a_file_replaces_a_link_and_does_not_follow_it"],
    # 0666 and 0777: who runs in the workspace is another user than who unpacks.
    "B110": [f"{EXTRACTING}::test_modes_and_owners_are_ours"],
    "B112": [f"{EXTRACTING}::test_a_gib_of_zeros_is_refused_long_before_its_end"],
    "B113": [f"{EXTRACTING}::test_a_hundred_thousand_entries_are_the_most"],
    "B119": [f"{EXTRACTING}::test_an_empty_archive_is_an_empty_directory"],
    "B122": [f"{EXTRACTING}::test_an_archive_in_an_archive_is_a_file"],
    # Extraction merges: only what has no place, a file for a directory, is refused, and then as a whole.
    "B123": [
        f"{EXTRACTING}::test_extracting_joins_directories_and_replaces_files",
        f"{EXTRACTING}::test_an_entry_without_a_place_leaves_all_as_it_was",
    ],
    "B124": [
        f"{CHANGES}::test_more_names_than_may_be_seen_are_refused",
        f"{CHANGES}::test_more_files_than_may_be_told_are_refused",
        f"{CHANGES}::test_names_at_the_end_of_a_long_path_do_not_fill_the_memory",
        f"{CHANGES}::test_a_tree_that_changes_while_it_is_read_is_no_archive",
        f"{CHANGES}::test_a_file_that_shrinks_is_no_archive_and_one_that_grows_is_cut",
    ],
}

NOT_OURS = {
    "B104": "no door gives files away: what an artifact reads is in its event, whole or not at all",
}


def in_corpus() -> dict[str, list[str]]:
    """The entries of the corpus by the row that begins their name."""
    rows: dict[str, list[str]] = {}
    for name in names_in_file(CORPUS):
        corpus, _, entry = name.removesuffix("]").partition("[")
        if corpus in ("HOSTILE", "SKIPPED"):
            rows.setdefault(entry.split(" ")[0], []).append(f"{CORPUS}::{name}")
    return rows


def test_every_row_has_a_test_or_a_reason() -> None:
    covered = TESTED.keys() | in_corpus().keys()
    assert [row for row in ROWS if row not in covered | NOT_OURS.keys()] == []
    assert covered | NOT_OURS.keys() <= set(ROWS)
    assert not covered & NOT_OURS.keys()


def test_every_test_that_is_named_exists() -> None:
    assert missing_tests(name for names in TESTED.values() for name in names) == []


@pytest.mark.parametrize("corpus", ["HOSTILE", "SKIPPED"])
def test_the_corpus_is_unpacked(corpus: str) -> None:
    """By the tests that are named for it: an entry that nobody unpacks would prove nothing."""
    text = (TESTS / EXTRACTING).read_text()
    assert f'@pytest.mark.parametrize("what", {corpus})' in text
