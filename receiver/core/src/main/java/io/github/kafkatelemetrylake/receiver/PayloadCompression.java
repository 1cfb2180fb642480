package io.github.kafkatelemetrylake.receiver;

import com.github.luben.zstd.ZstdCompressCtx;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.List;
import java.util.zip.GZIPOutputStream;
import net.jpountz.lz4.LZ4FrameOutputStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.xerial.snappy.SnappyOutputStream;

/**
 * Compresses the value of a landing record in a framing that Kafka's clients push (KIP-714), if that makes it smaller.
 *
 * <p>Uses the codecs' own libraries, which every broker has, because Kafka's wrappers moved between 3.7 and 4.3. Used only
 * by the lander's thread.
 */
final class PayloadCompression implements AutoCloseable {
    static final String NONE = "none";
    static final List<String> CODECS = List.of(NONE, "gzip", "snappy", "lz4", "zstd");

    private static final Logger LOG = LoggerFactory.getLogger(PayloadCompression.class);
    /** Kafka's own default. */
    private static final int ZSTD_LEVEL = 3;

    private final String codec;
    /** Native memory of zstd, which costs more to create than a payload to compress; null until it is needed. */
    private ZstdCompressCtx zstd;
    private boolean broken;

    PayloadCompression(String codec) {
        this.codec = codec;
    }

    /**
     * The compressed bytes; the same array, with codec {@code none}, if the codec is none or unavailable here, or the
     * compressed bytes would not be fewer.
     */
    Value compress(byte[] plain) {
        if (!codec.equals(NONE) && !broken && plain.length > 0) {
            try {
                byte[] compressed = codec.equals("zstd") ? zstd(plain) : stream(plain);
                if (compressed.length < plain.length) {
                    return new Value(compressed, codec);
                }
            } catch (IOException | RuntimeException | LinkageError e) {
                broken = true;
                LOG.error("Payload compression {} does not work in this broker: payloads land uncompressed", codec, e);
            }
        }
        return new Value(plain, NONE);
    }

    /** One frame that states its size. */
    private byte[] zstd(byte[] plain) {
        if (zstd == null) {
            zstd = new ZstdCompressCtx().setLevel(ZSTD_LEVEL);
        }
        return zstd.compress(plain);
    }

    private byte[] stream(byte[] plain) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(Math.max(64, plain.length / 4));
        try (OutputStream out = wrap(bytes)) {
            out.write(plain);
        }
        return bytes.toByteArray();
    }

    private OutputStream wrap(OutputStream out) throws IOException {
        switch (codec) {
            case "gzip":
                return new GZIPOutputStream(out);
            case "snappy":
                return new SnappyOutputStream(out);
            case "lz4":
                return new LZ4FrameOutputStream(out, LZ4FrameOutputStream.BLOCKSIZE.SIZE_64KB);
            default:
                throw new IOException("unknown codec " + codec);
        }
    }

    /** Frees the native memory. */
    @Override
    public void close() {
        if (zstd != null) {
            zstd.close();
            zstd = null;
        }
    }

    /** Bytes and their codec. */
    static final class Value {
        final byte[] bytes;
        final String codec;

        Value(byte[] bytes, String codec) {
            this.bytes = bytes;
            this.codec = codec;
        }
    }
}
