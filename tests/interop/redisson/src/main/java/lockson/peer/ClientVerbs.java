package lockson.peer;

import java.util.Set;

/** Opens and closes clients and returns their ids. */
final class ClientVerbs {
    private final Clients clients;

    ClientVerbs(Clients clients) {
        this.clients = clients;
    }

    void register(Verbs verbs) {
        verbs.add("open", ClientConfig.options(), this::open);
        verbs.add("close", Set.of(), this::close);
        verbs.add("ids", Set.of(), this::ids);
    }

    private void open(Request request, Answer answer) throws Exception {
        Client client = answer.time(() -> clients.open(request.smallNumber("client", 0), request));
        answer.put("client_id", client.id());
    }

    private void close(Request request, Answer answer) throws Exception {
        answer.time(() -> clients.close(request.smallNumber("client", 0)));
    }

    private void ids(Request request, Answer answer) {
        String client = clients.of(request).id();
        long thread = Thread.currentThread().getId();
        answer.put("client_id", client).put("thread_id", thread).put("owner", client + ":" + thread);
    }
}
