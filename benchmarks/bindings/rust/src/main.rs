//! A producer or consumer of rust-rdkafka that works until its standard input ends, then closes normally.
//!
//! Arguments: producer or consumer, and a file of key=value lines; keys that begin with `driver.` are its own, the
//! others go to the library. One JSON object a line tells what it does: started, closing, closed.

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};

static CLOSING: AtomicBool = AtomicBool::new(false);

fn tell(event: &str) {
    println!("{{\"event\": \"{event}\"}}");
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let text = fs::read_to_string(&arguments[2]).expect("the file of settings");
    let mut own = HashMap::new();
    let mut settings = ClientConfig::new();
    for line in text.lines() {
        let (key, value) = line.split_once('=').expect("key=value");
        if key.starts_with("driver.") {
            own.insert(key, value);
        } else {
            settings.set(key, value);
        }
    }
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        CLOSING.store(true, Ordering::Relaxed);
    });
    let topic = own["driver.topic"];
    if arguments[1] == "producer" {
        let pause = Duration::from_millis(own["driver.pause_ms"].parse().expect("milliseconds"));
        produce(&settings, topic, pause);
    } else {
        consume(&settings, topic);
    }
    tell("closed");
}

fn produce(settings: &ClientConfig, topic: &str, pause: Duration) {
    let producer: BaseProducer<DefaultProducerContext> = settings.create().expect("a producer");
    tell("started");
    while !CLOSING.load(Ordering::Relaxed) {
        for _ in 0..10 {
            let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(topic).payload(&[0; 100]);
            if let Err((error, _)) = producer.send(record) {
                eprintln!("{error}");
            }
        }
        let next = Instant::now() + pause;
        while Instant::now() < next && !CLOSING.load(Ordering::Relaxed) {
            producer.poll(Duration::from_millis(100));
        }
    }
    tell("closing");
    let _ = producer.flush(Duration::from_secs(5));
}

fn consume(settings: &ClientConfig, topic: &str) {
    let consumer: BaseConsumer = settings.create().expect("a consumer");
    consumer.subscribe(&[topic]).expect("a subscription");
    tell("started");
    while !CLOSING.load(Ordering::Relaxed) {
        if let Some(Err(error)) = consumer.poll(Duration::from_millis(100)) {
            eprintln!("{error}");
        }
    }
    tell("closing");
}
