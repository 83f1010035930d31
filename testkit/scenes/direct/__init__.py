"""A broker and its clients as plain functions: each request is answered before the next one."""
