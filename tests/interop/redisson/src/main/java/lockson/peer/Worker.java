package lockson.peer;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Function;

/** One numbered thread: runs its commands in order and lives as long as the process. */
final class Worker {
    private final BlockingQueue<Function<Worker, String>> commands = new LinkedBlockingQueue<>();
    private final Output output;
    private final Thread thread;
    private boolean running;
    private boolean interrupted;

    Worker(int number, Output output) {
        this.output = output;
        thread = new Thread(this::runCommands, "worker-" + number);
        thread.setDaemon(true);
        thread.start();
    }

    /** Queues a command; what it returns is written as its answer. */
    void submit(Function<Worker, String> command) {
        commands.add(command);
    }

    /** Interrupts the command that runs now; false if none does. It never hits a later command. */
    synchronized boolean interrupt() {
        if (running) {
            interrupted = true;
            thread.interrupt();
        }
        return running;
    }

    /** Whether the command that runs now has been interrupted. */
    synchronized boolean wasInterrupted() {
        return interrupted;
    }

    private void runCommands() {
        while (true) {
            Function<Worker, String> command = next();
            begin();
            String answer = command.apply(this);
            end(); // before the answer, so that whoever has read it can no longer hit this command
            output.line(answer);
        }
    }

    private Function<Worker, String> next() {
        try {
            return commands.take();
        } catch (InterruptedException impossible) {
            throw new IllegalStateException("a worker is interrupted only while it runs a command", impossible);
        }
    }

    private synchronized void begin() {
        running = true;
        interrupted = false;
    }

    private synchronized void end() {
        running = false;
        Thread.interrupted(); // forget an interrupt that came too late
    }
}
