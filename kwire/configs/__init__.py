"""Configuration names, their types and defaults, and which value is in force.

`definition` says what a configuration is, the tables (`topic`, `broker`, `resource`) list them all, `resolution` lays
the layers over each other, `properties` and `listeners` read the two syntaxes. `kwire.config` is the typed view of it
that the server uses.
"""
