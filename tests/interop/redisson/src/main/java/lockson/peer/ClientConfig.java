package lockson.peer;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.Config;

/** Turns the options of {@code open} into a Redisson configuration. */
final class ClientConfig {
    private static final String FEW_CONNECTIONS = "2";

    /** Setters of each option. All existing setters of the client are called, else all setters of the server part. */
    private static final Map<String, List<String>> SETTERS = new LinkedHashMap<>();

    static {
        SETTERS.put("watchdog_ms", List.of("setLockWatchdogTimeout"));
        SETTERS.put("watchdog_batch", List.of("setLockWatchdogBatchSize"));
        SETTERS.put("fair_wait_ms", List.of("setFairLockWaitTimeout"));
        SETTERS.put("name_prefix", List.of("setNameMapper"));
        SETTERS.put("username", List.of("setUsername"));
        SETTERS.put("password", List.of("setPassword"));
        SETTERS.put("database", List.of("setDatabase"));
        SETTERS.put("protocol", List.of("setProtocol"));
        SETTERS.put("client_name", List.of("setClientName"));
        SETTERS.put("timeout_ms", List.of("setTimeout"));
        SETTERS.put("connect_timeout_ms", List.of("setConnectTimeout"));
        SETTERS.put("subscription_timeout_ms", List.of("setSubscriptionTimeout"));
        SETTERS.put("retry_attempts", List.of("setRetryAttempts"));
        SETTERS.put("retry_delay_ms", List.of("setRetryDelay"));
        SETTERS.put("reconnect_delay_ms", List.of("setReconnectionDelay"));
        SETTERS.put("ping_interval_ms", List.of("setPingConnectionInterval"));
        SETTERS.put("check_synced_slaves", List.of("setCheckLockSyncedSlaves"));
        SETTERS.put("slaves_sync_timeout_ms", List.of("setSlavesSyncTimeout"));
        SETTERS.put("script_cache", List.of("setUseScriptCache"));
        SETTERS.put("keep_pubsub_order", List.of("setKeepPubSubOrder"));
        SETTERS.put("threads", List.of("setThreads"));
        SETTERS.put("netty_threads", List.of("setNettyThreads"));
        SETTERS.put("pool_size",
                List.of("setConnectionPoolSize", "setMasterConnectionPoolSize", "setSlaveConnectionPoolSize"));
        SETTERS.put("pool_idle", List.of("setConnectionMinimumIdleSize", "setMasterConnectionMinimumIdleSize",
                "setSlaveConnectionMinimumIdleSize"));
        SETTERS.put("subscription_pool_size", List.of("setSubscriptionConnectionPoolSize"));
        SETTERS.put("subscriptions_per_connection", List.of("setSubscriptionsPerConnection"));
        SETTERS.put("read_mode", List.of("setReadMode"));
        SETTERS.put("subscription_mode", List.of("setSubscriptionMode"));
        SETTERS.put("sharded", List.of("setShardedSubscriptionMode"));
        SETTERS.put("scan_interval_ms", List.of("setScanInterval"));
        SETTERS.put("master_name", List.of("setMasterName"));
        SETTERS.put("sentinel_username", List.of("setSentinelUsername"));
        SETTERS.put("sentinel_password", List.of("setSentinelPassword"));
        SETTERS.put("check_sentinels", List.of("setCheckSentinelsList"));
        SETTERS.put("tls_verify", List.of("setSslVerificationMode"));
        SETTERS.put("tls_truststore", List.of("setSslTruststore"));
        SETTERS.put("tls_truststore_password", List.of("setSslTruststorePassword"));
        SETTERS.put("tls_keystore", List.of("setSslKeystore"));
        SETTERS.put("tls_keystore_password", List.of("setSslKeystorePassword"));
    }

    private ClientConfig() {
    }

    static Set<String> options() {
        Set<String> options = new TreeSet<>(SETTERS.keySet());
        options.addAll(List.of("address", "mode", "codec"));
        return options;
    }

    static Config of(Request options) {
        Config config = new Config();
        if (options.text("codec", "string").equals("string")) {
            config.setCodec(StringCodec.INSTANCE);
        } else if (!options.text("codec").equals("default")) {
            throw new BadInput("codec is neither string nor default");
        }
        BaseConfig<?> servers = servers(config, options);
        set("pool_idle", options.text("pool_idle", FEW_CONNECTIONS), config, servers);
        for (String option : SETTERS.keySet()) {
            if (options.has(option)) {
                set(option, options.text(option), config, servers);
            }
        }
        return config;
    }

    private static BaseConfig<?> servers(Config config, Request options) {
        List<String> addresses = options.texts("address");
        String[] all = addresses.toArray(String[]::new);
        return switch (options.text("mode", "single")) {
            case "single" -> {
                if (addresses.size() != 1) {
                    throw new BadInput("mode single takes one address");
                }
                yield config.useSingleServer().setAddress(all[0]);
            }
            case "cluster" -> config.useClusterServers().addNodeAddress(all);
            case "sentinel" -> config.useSentinelServers().addSentinelAddress(all);
            case "replicated" -> config.useReplicatedServers().addNodeAddress(all);
            case "master_slave" -> config.useMasterSlaveServers().setMasterAddress(all[0])
                    .addSlaveAddress(addresses.subList(1, all.length).toArray(String[]::new));
            default -> throw new BadInput("no such mode: " + options.text("mode"));
        };
    }

    private static void set(String option, String value, Config config, BaseConfig<?> servers) {
        boolean known = false;
        for (String setter : SETTERS.get(option)) {
            known |= Setting.apply(config, setter, value) || Setting.apply(servers, setter, value);
        }
        if (!known) {
            throw new BadInput(option + " does not go with this mode");
        }
    }
}
