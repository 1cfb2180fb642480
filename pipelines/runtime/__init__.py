"""The runtime of a job: the Spark session, jars, the JVM, Kafka's Admin client."""
