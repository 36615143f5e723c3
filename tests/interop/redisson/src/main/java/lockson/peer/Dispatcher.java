package lockson.peer;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Sends each command to its thread; commands about the process itself run at once. */
final class Dispatcher {
    private static final int DIED = 9;

    private final Output output;
    private final Clients clients = new Clients();
    private final Verbs verbs = Verbs.all(clients);
    private final Map<Integer, Worker> workers = new ConcurrentHashMap<>();

    Dispatcher(Output output) {
        this.output = output;
    }

    void dispatch(String line) {
        String id = Request.idOf(line);
        Answer answer = new Answer();
        try {
            Request request = Request.parse(line);
            int thread = request.smallNumber("thread", 0);
            switch (request.verb()) {
                case "interrupt" -> output.line(interrupt(request, thread, answer).ok(id));
                case "quit" -> quit(request, answer, id);
                case "die" -> Runtime.getRuntime().halt(DIED);
                default -> worker(thread).submit(worker -> perform(request, id, worker));
            }
        } catch (BadInput refused) {
            output.line(answer.failed(id, Failure.of(refused)));
        }
    }

    private Worker worker(int thread) {
        return workers.computeIfAbsent(thread, number -> new Worker(number, output));
    }

    private String perform(Request request, String id, Worker worker) {
        Answer answer = new Answer();
        try {
            verbs.perform(request, answer);
            return answer.ok(id);
        } catch (Throwable thrown) {
            boolean interrupted = worker.wasInterrupted() && !(thrown instanceof BadInput);
            return answer.failed(id, interrupted ? Failure.interrupted(thrown) : Failure.of(thrown));
        }
    }

    private Answer interrupt(Request request, int thread, Answer answer) {
        request.allowOnly(Set.of("thread"));
        Worker worker = workers.get(thread);
        return answer.put("hit", worker != null && worker.interrupt());
    }

    private void quit(Request request, Answer answer, String id) {
        request.allowOnly(Set.of());
        clients.closeAll();
        output.line(answer.ok(id));
        Runtime.getRuntime().halt(0);
    }
}
