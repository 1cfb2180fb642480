//! A krafka producer that sends until its standard input ends, then closes normally.
//!
//! Arguments: bootstrap servers, a topic, a client id.

use std::time::Duration;

use krafka::{Kafka, Record};
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let kafka = Kafka::builder(words[1].clone()).client_id(words[3].clone()).connect().await?;
    let producer = kafka.producer().build().await?;
    let end = async {
        let mut rest = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    };
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => break,
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        // What can't be sent meanwhile isn't: its telemetry is looked at.
        let _ = tokio::time::timeout(Duration::from_secs(5), producer.send(Record::new(words[2].clone(), "record"))).await;
    }
    producer.close().await?;
    Ok(())
}
