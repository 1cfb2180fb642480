#!/bin/bash
# Adobe's S3Mock: of four simultaneous PUTs with If-None-Match: * several succeed; one after the other only the first does.
#
# Version: s3mock 4.7.0 (com.adobe.testing, exec jar, Java 17), boto3 1.44.8, botocore 1.44.8
# Behaviour: whether the object exists is looked at before it is written, without a lock for both. A test which commits to a
#   table format over it, one writer after the other, sees conditional writes that work; two writers at once both believe that
#   their commit is the one, and one of them is overwritten. Seen 43 rounds of 60 with more than one winner.
# Right: one winner in each round, as AWS says of its own.
# Output (2026-11-27):
#   one after the other: 1 of 4 succeeds, the others PreconditionFailed
#   at once: 40 rounds, more than one winner in at least one in ten of them
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

. "$(dirname "$script")/support/jars"
jars . com.adobe.testing:s3mock:4.7.0:exec
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check boto3==1.44.8 botocore==1.44.8
cat > ask.py <<'E'
import os
import socket
import subprocess
import threading
import time

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, HTTPClientError

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.mkdir("root")
arguments = ["-Dcom.adobe.testing.s3mock.store.root=" + os.path.abspath("root"), "-jar", "s3mock-4.7.0-exec.jar"]
options = [f"--com.adobe.testing.s3mock.httpPort={port}", "--server.port=0", "--server.address=127.0.0.1"]
server = subprocess.Popen(
    ["java", *arguments, *options], stdout=open("log", "w"), stderr=subprocess.STDOUT
)
WRITERS = 4
clients = [
    boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
    )
    for _ in range(WRITERS)
]


def create(writer: int, key: str) -> str:
    try:
        clients[writer].put_object(Bucket="bucket", Key=key, Body=str(writer).encode(), IfNoneMatch="*")
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "created"


def create_at_once(key: str) -> list[str]:
    said: list[str] = [""] * WRITERS
    ready = threading.Barrier(WRITERS)

    def run(writer: int) -> None:
        ready.wait()
        said[writer] = create(writer, key)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


try:
    for _ in range(120):
        try:
            clients[0].create_bucket(Bucket="bucket")
            break
        except (EndpointConnectionError, HTTPClientError):
            time.sleep(0.5)
    said = [create(writer, "in-turn") for writer in range(WRITERS)]
    print(f"one after the other: {said.count('created')} of {WRITERS} succeeds, the others", *set(said) - {"created"})
    rounds = [create_at_once(f"round-{number}").count("created") for number in range(40)]
    several = sum(winners > 1 for winners in rounds)
    least = "in at least one in ten of them" if several >= 4 else f"in {several}"
    print(f"at once: {len(rounds)} rounds, more than one winner {least}")
finally:
    server.terminate()
    server.wait()
E
env -u http_proxy -u HTTP_PROXY venv/bin/python ask.py | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
