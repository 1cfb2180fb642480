package io.github.kafkatelemetrylake.receiver;

import java.util.Map;

/** The lander's counters since its start, in JMX: {@code io.github.kafkatelemetrylake:type=ClientTelemetryLander}. */
public interface ClientTelemetryLanderMXBean {
    /** Pushes that the receiver was handed. */
    long getReceived();

    /** Pushes acknowledged in the landing topic with their payload. */
    long getLanded();

    /** Pushes of which at least the payload was lost. */
    long getDroppedTotal();

    /** Dropped pushes by reason. */
    Map<String, Long> getDropped();

    /** Pushes that are neither landed nor dropped: queued or in flight. */
    long getQueueDepth();

    /** Upper bound of the heap that queued and in-flight pushes use, in bytes; limited by {@code queue.bytes}. */
    long getQueueBytes();

    /** Mean time of a push on the thread of its request, in microseconds. */
    double getRequestThreadMicrosAvg();

    /** Longest time of a push on the thread of its request, in microseconds. */
    double getRequestThreadMicrosMax();

    /** Number of quota sensors in the broker: one per entity and quota type; 0 outside of brokers. */
    int getQuotaSensors();

    /** Quota samples that their topic has acknowledged. */
    long getQuotaSamplesLanded();

    /** Quota samples taken that did not land. */
    long getQuotaSamplesLost();
}
