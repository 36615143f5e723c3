package lockson.peer;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.Redisson;

/** The open clients by their numbers. */
final class Clients {
    private final Map<Integer, Client> open = new ConcurrentHashMap<>();

    Client open(int number, Request options) {
        if (open.containsKey(number)) {
            throw new BadInput("client " + number + " is already open");
        }
        Client client = new Client(Redisson.create(ClientConfig.of(options)));
        open.put(number, client);
        return client;
    }

    Client get(int number) {
        Client client = open.get(number);
        if (client == null) {
            throw new BadInput("client " + number + " is not open");
        }
        return client;
    }

    /** The client of a request. */
    Client of(Request request) {
        return get(request.smallNumber("client", 0));
    }

    void close(int number) {
        Client client = get(number);
        open.remove(number);
        client.close();
    }

    void closeAll() {
        open.values().parallelStream().forEach(Client::close);
    }
}
