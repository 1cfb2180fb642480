package io.github.kafkatelemetrylake.receiver;

import java.nio.ByteBuffer;

/**
 * One PushTelemetry request (KIP-714) as its receiver has it.
 *
 * <p>The lander calls both methods on the request's thread, once, and counts what they throw as a lost push.
 */
public interface PushRequest {
    /** The metrics bytes, which are copied: the buffer stays the request's. Null: none. */
    ByteBuffer data();

    /** What is known of the request besides its bytes. */
    PushDetails details();
}
