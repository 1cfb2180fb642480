"""Entry points: one ``main(argv)`` each, for spark-submit, a wheel task and the ``telemetry-lake`` command."""
