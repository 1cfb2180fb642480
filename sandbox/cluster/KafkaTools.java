import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Kafka's own command-line tools, called in one JVM: starting one for each command costs more than the command.
 *
 * <p>A request is one line: a tool's main class and its arguments, separated by U+001F. The reply is a line with the
 * exit status and the size of the tool's output in bytes, then the output. The process ends at the end of its input.
 */
public final class KafkaTools {
    /** Unwinds a tool that requests the exit of the process; anything that it prints after that is ignored. */
    private static final class ToolExit extends Error {
        ToolExit() {
            super(null, null, false, false);
        }
    }

    private static final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    private static int status;
    private static int size;
    private static boolean exited;

    private static void exit(int asked, String message) {
        if (!exited) {
            if (message != null) {
                System.out.println(message);
            }
            finish(asked);
            exited = true;
        }
        throw new ToolExit();
    }

    private static void finish(int asked) {
        if (!exited) {
            System.out.flush();
            status = asked;
            size = printed.size();
        }
    }

    public static void main(String[] unused) throws Exception {
        PrintStream replies = System.out;
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        takeExits();

        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            exited = false;
            run(line.split("\u001f"));
            replies.print(status + " " + size + "\n");
            replies.write(printed.toByteArray(), 0, size);
            replies.flush();
            printed.reset();
        }
    }

    /** Kafka's class Exit calls {@link #exit} from now on. It has another package from 4.4 on. */
    private static void takeExits() throws ReflectiveOperationException {
        Class<?> exits;
        try {
            exits = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException e) {
            exits = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        Class<?> procedure = Class.forName(exits.getName() + "$Procedure");
        ClassLoader loader = procedure.getClassLoader();
        Object instead = Proxy.newProxyInstance(loader, new Class<?>[] {procedure}, (self, method, given) -> {
            exit((int) given[0], (String) given[1]);
            return null;
        });
        exits.getMethod("setExitProcedure", procedure).invoke(null, instead);
        exits.getMethod("setHaltProcedure", procedure).invoke(null, instead);
    }

    private static void run(String[] request) {
        try {
            String[] arguments = Arrays.copyOfRange(request, 1, request.length);
            Class.forName(request[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            finish(0);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof ToolExit)) {
                e.getCause().printStackTrace();
                finish(1);
            }
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            finish(1);
        }
    }
}
