//! Reads a topic of OTLP metrics from its beginning to its present end, and writes the points to Parquet files.
//!
//! otlp-to-parquet HOST:PORT TOPIC FOLDER

use std::{env, error::Error, fs, path::Path, sync::Arc};

use otlp2records::{to_parquet, transform_metrics, InputFormat};
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;

const CHUNK_BYTES: usize = 64 << 20; // of payloads that are decoded at once
const FETCH_BYTES: i32 = 8 << 20;
const IDENTITY: &str = "client_instance_id";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, topic, folder] = arguments.as_slice() else {
        return Err("expected: HOST:PORT TOPIC FOLDER".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(copy(address, topic, Path::new(folder)))
}

async fn copy(address: &str, topic: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let client = ClientBuilder::new(vec![address.to_owned()]).build().await?;
    let topics = client.list_topics().await?;
    let partitions = &topics
        .iter()
        .find(|each| each.name == topic)
        .ok_or("no such topic")?
        .partitions;
    let mut chunk = Chunk {
        folder,
        payloads: Vec::new(),
        files: 0,
        skipped: 0,
    };
    for &partition in partitions {
        let partition = client
            .partition_client(topic, partition, UnknownTopicHandling::Error)
            .await?;
        read(Arc::new(partition), &mut chunk).await?;
    }
    chunk.write()?;
    println!("skipped: {}", chunk.skipped);
    Ok(())
}

async fn read(
    partition: Arc<PartitionClient>,
    chunk: &mut Chunk<'_>,
) -> Result<(), Box<dyn Error>> {
    let end = partition.get_offset(OffsetAt::Latest).await?;
    let mut offset = partition.get_offset(OffsetAt::Earliest).await?;
    while offset < end {
        let (records, _) = partition.fetch_records(offset, 1..FETCH_BYTES, 500).await?;
        for each in records {
            offset = each.offset + 1;
            let identity = each
                .record
                .headers
                .get(IDENTITY)
                .map_or(&[][..], Vec::as_slice);
            chunk.add(&each.record.value.unwrap_or_default(), identity)?;
        }
    }
    Ok(())
}

/// Payloads that wait to be decoded. Messages one after the other are one message with all their resources.
struct Chunk<'a> {
    folder: &'a Path,
    payloads: Vec<u8>,
    files: usize,
    skipped: usize, // points that otlp2records leaves out, as those without a finite value
}

impl Chunk<'_> {
    /// Add a MetricsData message. Each of its resources gets one more attribute: fields that come twice are merged.
    fn add(&mut self, payload: &[u8], identity: &[u8]) -> Result<(), Box<dyn Error>> {
        let value = field(1, identity); // AnyValue.string_value
        let attribute = [field(1, IDENTITY.as_bytes()), field(2, &value)].concat(); // KeyValue
        let resource = field(1, &field(1, &attribute)); // ResourceMetrics.resource, its attributes
        let mut rest = payload;
        while !rest.is_empty() {
            let (&tag, after) = rest.split_first().ok_or("cut")?;
            if tag != 0x0a {
                return Err("not MetricsData.resource_metrics".into());
            }
            let (length, after) = varint(after)?;
            let (body, after) = after.split_at_checked(length).ok_or("cut")?;
            self.payloads.push(tag);
            put_varint(&mut self.payloads, body.len() + resource.len());
            self.payloads.extend_from_slice(body);
            self.payloads.extend_from_slice(&resource);
            rest = after;
        }
        if self.payloads.len() >= CHUNK_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Box<dyn Error>> {
        let batches = transform_metrics(&self.payloads, InputFormat::Protobuf)?;
        self.payloads.clear();
        self.skipped += batches.skipped.total();
        let kinds = [
            ("gauge", batches.gauge),
            ("sum", batches.sum),
            ("histogram", batches.histogram),
            ("exp_histogram", batches.exp_histogram),
        ];
        for (kind, batch) in kinds {
            if let Some(batch) = batch {
                fs::write(
                    self.folder.join(format!("{kind}-{}.parquet", self.files)),
                    to_parquet(&batch)?,
                )?;
            }
        }
        self.files += 1;
        Ok(())
    }
}

/// A length-delimited field of a number below 16.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    put_varint(&mut bytes, content.len());
    bytes.extend_from_slice(content);
    bytes
}

fn put_varint(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn varint(bytes: &[u8]) -> Result<(usize, &[u8]), Box<dyn Error>> {
    let mut value = 0;
    for (place, &byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok((value, &bytes[place + 1..]));
        }
    }
    Err("not a varint".into())
}
