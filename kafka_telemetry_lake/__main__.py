"""``python -m kafka_telemetry_lake`` is the command ``telemetry-lake``."""

import sys

from kafka_telemetry_lake.jobs.cli import main

sys.exit(main())
