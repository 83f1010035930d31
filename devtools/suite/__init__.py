"""How the tests are run: in which groups, side by side in several processes, and for how many CPU seconds."""
