"""The external tools that kwire's tests, demo and benchmarks need: Java, Java archives, Apache Kafka, Spark.

Nothing here is shipped. Everything that it downloads or builds is in the checkout's `.cache` folder. It needs nothing
in the home folder, and deleting `.cache` costs only time.
"""
