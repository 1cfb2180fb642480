package io.github.kafkatelemetrylake.receiver;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.message.InitProducerIdResponseData;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.RequestUtils;

/** A Kafka broker with one topic of one partition that reads produce requests and never answers them. */
final class SilentBroker implements AutoCloseable {
    private final String topic;
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Set<Socket> connections = ConcurrentHashMap.newKeySet();

    SilentBroker(String topic) throws IOException {
        this.topic = topic;
        start(this::accept);
    }

    String bootstrapServers() {
        return server.getInetAddress().getHostAddress() + ":" + server.getLocalPort();
    }

    private void accept() throws IOException {
        while (true) {
            Socket connection = server.accept();
            connections.add(connection);
            start(() -> serve(connection));
        }
    }

    private void serve(Socket connection) throws IOException {
        DataInputStream in = new DataInputStream(connection.getInputStream());
        OutputStream out = connection.getOutputStream();
        while (true) {
            ByteBuffer request = ByteBuffer.wrap(in.readNBytes(in.readInt()));
            RequestHeader header = RequestHeader.parse(request);
            ApiMessage answer = answer(header.apiKey());
            if (answer != null) {
                ByteBuffer bytes = RequestUtils.serialize(
                        new ResponseHeaderData().setCorrelationId(header.correlationId()),
                        header.apiKey().responseHeaderVersion(header.apiVersion()), answer, header.apiVersion());
                out.write(ByteBuffer.allocate(4).putInt(bytes.remaining()).array());
                out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            }
        }
    }

    /** Null: none. */
    private ApiMessage answer(ApiKeys api) {
        switch (api) {
            case API_VERSIONS:
                ApiVersionsResponseData versions = new ApiVersionsResponseData();
                for (ApiKeys key : List.of(ApiKeys.PRODUCE, ApiKeys.METADATA, ApiKeys.API_VERSIONS, ApiKeys.INIT_PRODUCER_ID)) {
                    versions.apiKeys().add(new ApiVersionsResponseData.ApiVersion()
                            .setApiKey(key.id).setMinVersion(key.oldestVersion()).setMaxVersion(key.latestVersion()));
                }
                return versions;
            case METADATA:
                MetadataResponseData metadata = new MetadataResponseData().setClusterId("silent").setControllerId(1);
                metadata.brokers().add(new MetadataResponseData.MetadataResponseBroker()
                        .setNodeId(1).setHost(server.getInetAddress().getHostAddress()).setPort(server.getLocalPort()));
                metadata.topics().add(new MetadataResponseData.MetadataResponseTopic()
                        .setName(topic).setTopicId(new Uuid(1, 1)).setPartitions(List.of(
                                new MetadataResponseData.MetadataResponsePartition().setPartitionIndex(0).setLeaderId(1)
                                        .setLeaderEpoch(0).setReplicaNodes(List.of(1)).setIsrNodes(List.of(1)))));
                return metadata;
            case INIT_PRODUCER_ID:
                return new InitProducerIdResponseData().setProducerId(1).setProducerEpoch((short) 0);
            default:
                return null;
        }
    }

    /** A task that ends when its socket is closed. */
    private interface Work {
        void run() throws IOException;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException e) {
                return;  // closed
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        server.close();
        for (Socket connection : connections) {
            connection.close();
        }
    }
}
