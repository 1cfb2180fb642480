package io.github.kafkatelemetrylake.receiver;

/** The broker and the cluster that the plugin runs in. The broker passes the cluster id only after {@code configure}. */
final class BrokerIdentity {
    private volatile String clusterId;
    private volatile String brokerId;

    /** Null until the broker has passed it. */
    String clusterId() {
        return clusterId;
    }

    /** Null until the broker has passed it. */
    String brokerId() {
        return brokerId;
    }

    void clusterId(String id) {
        clusterId = id;
    }

    void brokerId(String id) {
        brokerId = id;
    }
}
