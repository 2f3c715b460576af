"""Container jobs: one container with files in and files out, told about by signed events."""
