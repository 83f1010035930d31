"""Configuration names, their types and defaults, and which value is in force.

`definition` says what a configuration is, `tables/` lists them all, `resolution` lays the layers over each other,
`properties` and `listeners` read the two syntaxes. `server` is the typed view of it that the server uses.
"""
