"""Configurations: their names, types and defaults, and the values in force.

`definition` defines a configuration, `tables/` lists all of them, `resolution` combines the layers, and `properties`
and `listeners` parse the two syntaxes. `server` has the typed values that the server uses.
"""
