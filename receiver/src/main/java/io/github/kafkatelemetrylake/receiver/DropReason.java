package io.github.kafkatelemetrylake.receiver;

import java.util.Locale;

/** Why a push, or its payload, did not land. The lower-case name is the key of {@code dropped} in the status record. */
enum DropReason {
    /** The queue was at its bound of records or bytes. */
    QUEUE_FULL,
    /** Above the plugin's, the producer's or the topic's limit: only the headers landed. */
    TOO_LARGE,
    /** Not acknowledged within the producer's delivery timeout. */
    SEND_FAILED,
    /** Still queued or in flight when the plugin was closed, or received after that. */
    CLOSED,
    /** No memory for the copy of the payload. */
    OUT_OF_MEMORY,
    /** Anything else that was thrown; the broker's log names it. */
    ERROR;

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
