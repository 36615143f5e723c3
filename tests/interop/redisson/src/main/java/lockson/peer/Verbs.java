package lockson.peer;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** Finds the verb of a request and checks that the verb takes the request's keys. */
final class Verbs {
    private static final Set<String> KEYS_OF_EVERY_VERB = Set.of("thread", "client");
    private static final Set<String> KEYS_OF_OBJECTS = Set.of("kind", "name", "names", "of", "clients", "handle");

    interface Verb {
        void perform(Request request, Answer answer) throws Exception;
    }

    private record Entry(Set<String> keys, Verb verb) {
    }

    private final Map<String, Entry> processVerbs = new HashMap<>();
    private final Map<Kind.Family, Map<String, Entry>> objectVerbs = new HashMap<>();

    static Verbs all(Clients clients) {
        Verbs verbs = new Verbs();
        Handles handles = new Handles(clients);
        new ClientVerbs(clients).register(verbs);
        new LockVerbs(handles).register(verbs);
        new SemaphoreVerbs(handles).register(verbs);
        new PermitVerbs(handles).register(verbs);
        new LatchVerbs(handles).register(verbs);
        new CycleVerb(handles).register(verbs);
        return verbs;
    }

    /** Adds a verb without an object. */
    void add(String name, Set<String> keys, Verb verb) {
        processVerbs.put(name, entry(KEYS_OF_EVERY_VERB, keys, verb));
    }

    /** Adds a verb for all kinds of a family; keys are separated by blanks. */
    void add(Kind.Family family, String name, String keys, Verb verb) {
        Set<String> own = keys.isEmpty() ? Set.of() : Set.of(keys.split(" "));
        Set<String> common = new HashSet<>(KEYS_OF_EVERY_VERB);
        common.addAll(KEYS_OF_OBJECTS);
        objectVerbs.computeIfAbsent(family, any -> new HashMap<>()).put(name, entry(common, own, verb));
    }

    void perform(Request request, Answer answer) throws Exception {
        Entry entry = find(request);
        request.allowOnly(entry.keys());
        entry.verb().perform(request, answer);
    }

    private Entry find(Request request) {
        Entry entry = processVerbs.get(request.verb());
        if (entry != null) {
            return entry;
        }
        if (objectVerbs.values().stream().noneMatch(verbs -> verbs.containsKey(request.verb()))) {
            throw new BadInput("no such verb: '" + request.verb() + "'");
        }
        Kind kind = Kind.named(request.text("kind"));
        entry = objectVerbs.get(kind.family()).get(request.verb());
        if (entry == null) {
            throw new UnsupportedOperationException(kind.protocolName() + " has no " + request.verb());
        }
        return entry;
    }

    private static Entry entry(Set<String> common, Set<String> own, Verb verb) {
        Set<String> keys = new HashSet<>(common);
        keys.addAll(own);
        return new Entry(Set.copyOf(keys), verb);
    }
}
