package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.luben.zstd.Zstd;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.utils.BufferSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PayloadCompressionTest {
    private static final byte RECORD_MAGIC = 2;

    private static byte[] payload(int size) {
        byte[] bytes = new byte[size];
        new Random(1).nextBytes(bytes);
        Arrays.fill(bytes, 0, size / 2, (byte) 7);
        return bytes;
    }

    @ParameterizedTest
    @ValueSource(strings = {"gzip", "snappy", "lz4", "zstd"})
    void kafkaItselfDecodesWhatIsCompressed(String codec) throws Exception {
        byte[] plain = payload(200_000);
        PayloadCompression compression = new PayloadCompression(codec);
        for (int i = 0; i < 2; i++) {  // what one payload leaves behind must not be in the next
            PayloadCompression.Value value = compression.compress(plain);
            assertEquals(codec, value.codec);
            assertTrue(value.bytes.length < 120_000, "compressed to " + value.bytes.length);
            try (InputStream in = Compression.of(codec).build()
                    .wrapForInput(ByteBuffer.wrap(value.bytes), RECORD_MAGIC, BufferSupplier.NO_CACHING)) {
                assertArrayEquals(plain, in.readAllBytes());
            }
        }
        compression.close();
    }

    @ParameterizedTest
    @ValueSource(strings = {"gzip", "snappy", "lz4", "zstd"})
    void payloadThatDoesNotShrinkLandsAsItIs(String codec) {
        byte[] noise = new byte[100_000];
        new Random(2).nextBytes(noise);
        for (byte[] plain : new byte[][] {noise, {1}, {1, 2, 3}, new PayloadCompression("zstd").compress(payload(9_000)).bytes}) {
            PayloadCompression.Value value = new PayloadCompression(codec).compress(plain);
            assertEquals("none", value.codec);
            assertSame(plain, value.bytes);
        }
    }

    @Test
    void zstdFrameStatesItsSize() {
        byte[] plain = payload(5_000);

        assertEquals(5_000, Zstd.getFrameContentSize(new PayloadCompression("zstd").compress(plain).bytes));
    }

    @Test
    void noneLeavesTheBytesAlone() {
        byte[] plain = payload(10);
        PayloadCompression.Value value = new PayloadCompression("none").compress(plain);

        assertEquals("none", value.codec);
        assertSame(plain, value.bytes);
    }

    @Test
    void emptyPayloadStaysEmpty() {
        PayloadCompression.Value value = new PayloadCompression("zstd").compress(new byte[0]);

        assertEquals("none", value.codec);
        assertEquals(0, value.bytes.length);
    }

    @Test
    void codecThatDoesNotWorkLandsPlain() {
        byte[] plain = payload(10);
        PayloadCompression broken = new PayloadCompression("brotli");

        for (int i = 0; i < 2; i++) {
            PayloadCompression.Value value = broken.compress(plain);
            assertEquals("none", value.codec);
            assertSame(plain, value.bytes);
        }
    }
}
