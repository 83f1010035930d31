"""Generator of kwire_protocol.messages, kwire_protocol.internal and kwire_protocol.errors.

    schemas/*.json --(schema.py)--> values --(layout.py)--> the layout of each version --(emit_*.py)--> Python source

Run from the root of the repository:

    python -m codegen                   write the generated modules
    python -m codegen --check           check that they are fresh (exit status 1 and a list when not)
    python -m codegen.import_schemas    make the schemas from Kafka's jars (once per Kafka version)
"""
