package io.github.kafkatelemetrylake.receiver;

import java.util.Map;

/** The lander's counters in JMX, {@code io.github.kafkatelemetrylake:type=ClientTelemetryLander}; counts since the start. */
public interface ClientTelemetryLanderMXBean {
    /** Pushes that the broker handed over. */
    long getReceived();

    /** Pushes acknowledged in the landing topic with their payload. */
    long getLanded();

    /** Pushes that lost at least their payload. */
    long getDroppedTotal();

    /** The same by reason. */
    Map<String, Long> getDropped();

    /** Pushes neither landed nor dropped: waiting or in flight. */
    long getQueueDepth();

    /** Payload bytes of the waiting pushes. */
    long getQueueBytes();

    /** Mean time a push took of the broker's request thread, in microseconds. */
    double getRequestThreadMicrosAvg();

    /** Longest time a push took of the broker's request thread, in microseconds. */
    double getRequestThreadMicrosMax();

    /** Entities times quota types that the broker has sensors of. */
    int getQuotaSensors();

    /** Quota samples acknowledged in their topic. */
    long getQuotaSamplesLanded();

    /** Quota samples taken that did not land. */
    long getQuotaSamplesLost();
}
