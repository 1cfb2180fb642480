package io.github.kafkatelemetrylake.receiver;

/** Which broker of which cluster the plugin runs in. The broker tells the cluster id only after {@code configure}. */
final class BrokerIdentity {
    private volatile String clusterId;
    private volatile String brokerId;

    /** Null until the broker has told it. */
    String clusterId() {
        return clusterId;
    }

    /** Null until the broker has told it. */
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
