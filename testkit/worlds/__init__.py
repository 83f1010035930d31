"""Several machines, their disks and their clients in one process, in which anything may happen."""
