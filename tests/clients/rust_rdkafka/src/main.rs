//! A producer of Rust's rdkafka, which is librdkafka, that sends until its standard input ends, then closes normally.
//!
//! Arguments: bootstrap servers, a topic, a client id.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

fn main() -> Result<(), rdkafka::error::KafkaError> {
    let words: Vec<String> = std::env::args().collect();
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &words[1])
        .set("client.id", &words[3])
        .set("client.rack", "rack-1")
        .create()?;
    let ended = Arc::new(AtomicBool::new(false));
    let flag = ended.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::SeqCst);
    });
    while !ended.load(Ordering::SeqCst) {
        let _ = producer.send(BaseRecord::<str, str>::to(&words[2]).payload("record"));
        producer.poll(Duration::from_millis(50));
    }
    producer.flush(Duration::from_secs(5))
}
