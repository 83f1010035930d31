"""What kwire's tests, demo and benchmarks need of the outside world: a Java, Java archives, an Apache Kafka, a Spark.

Nothing here is shipped. Everything it fetches or builds lands in the checkout's `.cache` folder, so that an empty home
folder is enough, and a deleted `.cache` costs only time.
"""
