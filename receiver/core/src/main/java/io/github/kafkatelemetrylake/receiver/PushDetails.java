package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.common.Uuid;

/** What a receiver knows of one push besides its bytes: headers of the landing record. Null is unknown. */
public final class PushDetails {
    public Uuid clientInstanceId;
    public boolean terminating;
    public String contentType;
    /** Codec of the bytes, by name or id. */
    public String compressionType = PayloadCompression.NONE;
    public Integer subscriptionId;
    public Integer pushIntervalMs;
    public String clientId;
    /** Type and name, such as {@code User:orders}. */
    public String principal;
    public String listener;
    public String securityProtocol;
    public String clientAddress;
    public Integer clientPort;
    public String softwareName;
    public String softwareVersion;
    /** Null: that of the receiver. */
    public String clusterId;
    public int correlationId;
}
