package io.github.kafkatelemetrylake.receiver;

import java.util.Locale;

/** Why a push, or its payload, did not land. The lower-case name is the key of {@code dropped} in the status record. */
enum DropReason {
    /** Queued and in-flight pushes had reached their limit of records or bytes. */
    QUEUE_FULL,
    /** Larger than the limit of the receiver, the producer or the topic; only the headers landed. */
    TOO_LARGE,
    /** Not acknowledged within the producer's delivery timeout. */
    SEND_FAILED,
    /** Still queued or in flight when the receiver closed, or received after that. */
    CLOSED,
    /** No memory for the copy of the payload. */
    OUT_OF_MEMORY,
    /** Any other exception; it is in the log. */
    ERROR;

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
