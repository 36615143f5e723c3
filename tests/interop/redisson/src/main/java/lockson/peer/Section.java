package lockson.peer;

import java.util.List;

/** Something the load loop can enter and leave. */
interface Section {
    /** What is protected while a thread is inside. */
    List<String> names();

    /** False if it is busy and the wait is over. */
    boolean enter() throws Exception;

    void leave() throws Exception;
}
