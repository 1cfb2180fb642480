package io.github.kafkatelemetrylake.receiver;

/** The cluster that a receiver works for, and the broker if it runs in one; either may become known later. */
public final class BrokerIdentity {
    private volatile String clusterId;
    private volatile String brokerId;

    /** Null while it is unknown. */
    public String clusterId() {
        return clusterId;
    }

    /** Null while it is unknown, and outside of a broker. */
    String brokerId() {
        return brokerId;
    }

    public void clusterId(String id) {
        clusterId = id;
    }

    void brokerId(String id) {
        brokerId = id;
    }
}
