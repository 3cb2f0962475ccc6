// Runs Java that goes on from one execution to the next, in JShell. Orders come as lines from one descriptor, reports go
// as lines to another; their fields are separated by spaces, and all but the first are base64. Started from its source.

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import jdk.jshell.DeclarationSnippet;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet.Status;
import jdk.jshell.Snippet.SubKind;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.SourceCodeAnalysis.CompletionInfo;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.execution.LocalExecutionControlProvider;

public class JavaKernel {
    private static final String[] IMPORTS = {
        "java.io", "java.math", "java.net", "java.nio.file", "java.time", "java.util", "java.util.concurrent",
        "java.util.function", "java.util.regex", "java.util.stream"
    };
    private static final Set<SubKind> SHOWN = Set.of(
        SubKind.TEMP_VAR_EXPRESSION_SUBKIND, SubKind.VAR_VALUE_SUBKIND, SubKind.ASSIGNMENT_SUBKIND,
        SubKind.OTHER_EXPRESSION_SUBKIND);

    private final JShell shell;
    private final PrintStream reports;
    private volatile boolean interrupted;

    private JavaKernel(PrintStream reports) {
        this.reports = reports;
        shell = JShell.builder()
            .executionEngine(new LocalExecutionControlProvider(), Map.of())
            .in(InputStream.nullInputStream())
            .build();
        for (String name : IMPORTS) shell.eval("import " + name + ".*;");
    }

    public static void main(String[] words) throws Exception {
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8"));
        System.setErr(new PrintStream(new FileOutputStream(FileDescriptor.err), true, "UTF-8"));
        InputStream orders = new FileInputStream("/proc/self/fd/" + words[0]);
        PrintStream reports = new PrintStream(new FileOutputStream("/proc/self/fd/" + words[1]), true, "UTF-8");
        new JavaKernel(reports).serve(new BufferedReader(new InputStreamReader(orders, StandardCharsets.US_ASCII)));
        System.exit(0);
    }

    private void serve(BufferedReader orders) throws Exception {
        LinkedBlockingQueue<String> waiting = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(orders, waiting), "orders");
        reader.setDaemon(true);
        reader.start();
        report("ready");
        for (String order = waiting.take(); !order.isEmpty(); order = waiting.take()) {
            interrupted = false;
            carryOut(order.split(" "));
            System.out.flush();
            System.err.flush();
            report("done");
        }
    }

    private void read(BufferedReader orders, LinkedBlockingQueue<String> waiting) {
        try {
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                if (line.startsWith("interrupt")) {
                    interrupted = true;
                    shell.stop();
                } else if (line.startsWith("run ")) {
                    waiting.add(line);
                }
            }
        } catch (IOException gone) {
            // As at the end: there will be no more orders.
        }
        waiting.add("");
    }

    private void carryOut(String[] order) throws Exception {
        Map<String, String> before = new HashMap<>();
        for (int place = 2; place + 1 < order.length; place += 2) {
            String name = text(order[place]);
            before.put(name, lend(name, text(order[place + 1])));
        }
        try {
            evaluate(text(order[1]));
        } finally {
            for (Map.Entry<String, String> each : before.entrySet()) lend(each.getKey(), each.getValue());
        }
    }

    private void evaluate(String code) {
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String value = null;
        String rest = code;
        while (!rest.isBlank()) {
            CompletionInfo next = analysis.analyzeCompletion(rest);
            String source = next.completeness().isComplete() ? next.source() : rest;
            rest = next.completeness().isComplete() ? next.remaining() : "";
            value = null;
            for (SnippetEvent event : shell.eval(source)) {
                if (event.causeSnippet() != null) continue;  // something earlier, which this one changed
                if (interrupted) {
                    report("error", "InterruptedException", "The execution was interrupted", "");
                    return;
                }
                if (fail(event, source)) return;
                if (SHOWN.contains(event.snippet().subKind())) value = event.value();
            }
        }
        if (value != null && !value.isEmpty() && !value.equals("null")) report("result", value);
    }

    private boolean fail(SnippetEvent event, String source) {
        JShellException problem = event.exception();
        if (problem instanceof EvalException) {
            String name = ((EvalException) problem).getExceptionClassName();
            String said = problem.getMessage() == null ? "" : problem.getMessage();
            report("error", name.substring(name.lastIndexOf('.') + 1), said, trace(name, said, problem));
            return true;
        }
        if (problem != null) {
            report("error", "UnresolvedReferenceException", missing(((UnresolvedReferenceException) problem).getSnippet()), "");
            return true;
        }
        if (event.status() != Status.REJECTED && event.status() != Status.RECOVERABLE_NOT_DEFINED) return false;
        List<Diag> found = shell.diagnostics(event.snippet()).filter(Diag::isError).collect(Collectors.toList());
        String first = found.isEmpty()
            ? missing((DeclarationSnippet) event.snippet())
            : found.get(0).getMessage(Locale.ENGLISH);
        String all = found.stream().map(each -> place(each, source)).collect(Collectors.joining("\n"));
        report("error", "CompilationException", first, all.isEmpty() ? first : all);
        return true;
    }

    private String missing(DeclarationSnippet snippet) {
        return "cannot find " + shell.unresolvedDependencies(snippet).collect(Collectors.joining(", "));
    }

    private static String place(Diag found, String source) {
        int at = (int) Math.max(0, Math.min(found.getPosition(), source.length()));
        int begin = source.lastIndexOf('\n', at - 1) + 1;
        int end = source.indexOf('\n', at) < 0 ? source.length() : source.indexOf('\n', at);
        return source.substring(begin, end) + "\n" + " ".repeat(at - begin) + "^\n" + found.getMessage(Locale.ENGLISH);
    }

    private static String trace(String name, String said, Throwable problem) {
        String head = said.isEmpty() ? name : name + ": " + said;
        return head + Arrays.stream(problem.getStackTrace())
            .filter(each -> !each.getClassName().startsWith("jdk.") && !each.getClassName().startsWith("java.lang.reflect"))
            .map(each -> "\n    at " + each).collect(Collectors.joining());
    }

    // What an execution is lent is what System.getenv answers meanwhile, which Java itself never changes.
    @SuppressWarnings("unchecked")
    private static String lend(String name, String value) throws Exception {
        Map<String, String> fixed = System.getenv();
        Field inner = fixed.getClass().getDeclaredField("m");
        inner.setAccessible(true);
        Map<String, String> env = (Map<String, String>) inner.get(fixed);
        return value == null ? env.remove(name) : env.put(name, value);
    }

    private void report(String kind, String... fields) {
        String rest = Arrays.stream(fields)
            .map(each -> " " + Base64.getEncoder().encodeToString(each.getBytes(StandardCharsets.UTF_8)))
            .collect(Collectors.joining());
        synchronized (reports) {
            reports.print(kind + rest + "\n");
            reports.flush();
        }
    }

    private static String text(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }
}
