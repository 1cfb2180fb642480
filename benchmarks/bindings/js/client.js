// A producer or consumer of confluent-kafka-javascript that works until its standard input ends, then closes normally.
//
// Arguments: producer or consumer, and a file of key=value lines; keys that begin with `driver.` are its own, the others
// go to the library. One JSON object a line tells what it does: started, closing, closed.
"use strict";

const fs = require("fs");
const { KafkaConsumer, Producer } = require("@confluentinc/kafka-javascript");

const own = {};
const settings = {};
for (const line of fs.readFileSync(process.argv[3], "utf8").trim().split("\n")) {
  const at = line.indexOf("=");
  const key = line.slice(0, at);
  (key.startsWith("driver.") ? own : settings)[key] = line.slice(at + 1);
}

const tell = (event) => console.log(JSON.stringify({ event }));
const topic = own["driver.topic"];
const client = process.argv[2] === "producer" ? new Producer(settings) : new KafkaConsumer(settings, {});

client.on("event.error", (error) => console.error(error));
client.on("ready", () => {
  tell("started");
  if (client instanceof Producer) {
    client.setPollInterval(100);
    setInterval(() => {
      for (let i = 0; i < 10; i++) client.produce(topic, null, Buffer.alloc(100));
    }, Number(own["driver.pause_ms"]));
  } else {
    client.subscribe([topic]);
    client.consume();
  }
});
client.connect();

process.stdin.resume();
process.stdin.on("end", () => {
  tell("closing");
  client.disconnect((error) => {
    if (error) console.error(error);
    tell("closed");
    process.exit(0);
  });
});
