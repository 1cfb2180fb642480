package io.github.kafkatelemetrylake.receiver;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

/**
 * Prints what a push costs a broker after the request thread, in microseconds of CPU, and its bytes in a record batch.
 *
 * <p>The argument is a folder with one payload a file; {@code docs/receiver.md} has the command.
 */
final class PayloadCompressionBenchmark {
    private static final int ROUNDS = 12;
    private static final int BATCH_BYTES = 16 * 1024 * 1024;

    private PayloadCompressionBenchmark() {}

    public static void main(String[] args) throws IOException {
        List<Push> pushes = new ArrayList<>();
        try (Stream<Path> files = Files.list(Path.of(args[0]))) {
            for (Path file : files.sorted().collect(Collectors.toList())) {
                pushes.add(Fakes.push(Fakes.context("orders"), Fakes.payload(Files.readAllBytes(file)), 300_000, 1024));
            }
        }
        System.out.printf("%d pushes of %.0f bytes%n", pushes.size(),
                pushes.stream().mapToInt(push -> push.payloadBytes).average().orElse(0));
        for (String codec : new String[] {"none", "zstd"}) {
            LandingRecords records = new LandingRecords("topic", Fakes.broker(), new PayloadCompression(codec));
            double micros = 0;
            for (int round = 0; round < ROUNDS; round++) {
                long begin = cpuNanos();
                pushes.forEach(records::of);
                micros = (cpuNanos() - begin) / 1e3 / pushes.size();  // the last round's, warm
            }
            List<ProducerRecord<byte[], byte[]>> landing = pushes.stream().map(records::of).collect(Collectors.toList());
            for (String batchCodec : new String[] {"zstd", "lz4"}) {
                for (int size : new int[] {1, 4, 64}) {
                    System.out.printf("payload %-4s record %6.1f us, %s batch of %2d: ", codec, micros, batchCodec, size);
                    printBatches(landing, batchCodec, size);
                }
            }
        }
    }

    private static void printBatches(List<ProducerRecord<byte[], byte[]>> records, String codec, int size) {
        ByteBuffer buffer = ByteBuffer.allocate(BATCH_BYTES);
        double micros = 0;
        long bytes = 0;
        for (int round = 0; round < ROUNDS; round++) {
            bytes = 0;
            long begin = cpuNanos();
            for (int first = 0; first < records.size(); first += size) {
                buffer.clear();
                MemoryRecordsBuilder batch =
                        MemoryRecords.builder(buffer, Compression.of(codec).build(), TimestampType.CREATE_TIME, 0);
                for (ProducerRecord<byte[], byte[]> each : records.subList(first, Math.min(first + size, records.size()))) {
                    batch.append(0, each.key(), each.value(), each.headers().toArray());
                }
                bytes += batch.build().sizeInBytes();
            }
            micros = (cpuNanos() - begin) / 1e3 / records.size();
        }
        System.out.printf("%6.1f us, %5d bytes a push%n", micros, bytes / records.size());
    }

    private static long cpuNanos() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }
}
