import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import peeklock.ApiClient;
import peeklock.ApiException;
import peeklock.api.LocksApi;
import peeklock.api.MessagesApi;
import peeklock.api.QueuesApi;
import peeklock.api.TransactionsApi;
import peeklock.model.*;

/** Send, receive, renew and settle with the SDK that openapi-generator makes for Java. */
public class Program {
    private final String queue;
    private final MessagesApi messages;
    private final LocksApi locks;
    private final QueuesApi queues;
    private final TransactionsApi transactions;
    private final LocksApi newerLocks;
    private final ObjectMapper json;

    Program(String url, String queue, String newerUrl) {
        ApiClient client = new ApiClient();
        client.updateBaseUri(url);
        this.queue = queue;
        this.messages = new MessagesApi(client);
        this.locks = new LocksApi(client);
        this.queues = new QueuesApi(client);
        this.transactions = new TransactionsApi(client);
        ApiClient newer = new ApiClient();
        newer.updateBaseUri(newerUrl);
        this.newerLocks = new LocksApi(newer);
        this.json = client.getObjectMapper();
    }

    public static void main(String[] arguments) throws Exception {
        new Program(arguments[0], arguments[1], arguments[2]).run();
    }

    static Map<String, Object> properties() {
        Map<String, Object> properties = new LinkedHashMap<>();
        properties.put("text", "007");
        properties.put("letters", "grün ☕");
        properties.put("time", "2026-11-24T03:48:19.123456Z");
        properties.put("small", 17);
        properties.put("beyond_double", 9007199254740993L);
        properties.put("greatest", Long.MAX_VALUE);
        properties.put("least", Long.MIN_VALUE);
        properties.put("fraction", 0.1);
        properties.put("large", 1e300);
        properties.put("yes", true);
        properties.put("no", false);
        properties.put("nothing", null);
        return properties;
    }

    static Map<String, Object> body() {
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("order", 17);
        body.put("lines", List.of(Map.of("article", "007", "count", 9007199254740993L)));
        body.put("note", null);
        return body;
    }

    List<ReceivedMessage> receive(ReceiveMessages wanted) throws ApiException {
        return messages.receiveMessages(queue, wanted, null, null).getMessages();
    }

    /** Returns the problem with which a server refuses to abandon a delivery. */
    Problem refusal(LocksApi api, String token) throws Exception {
        try {
            api.abandonLock(queue, token, null);
            throw new IllegalStateException("the delivery was abandoned");
        } catch (ApiException refused) {
            return json.readValue(refused.getResponseBody(), Problem.class);
        }
    }

    static List<String> summary(SettlementResult result) {
        Object one = result.getActualInstance();
        if (one instanceof SettledResult settled) {
            return List.of("settled", settled.getOutcome().getValue());
        }
        return one instanceof RefusedResult refused
            ? List.of("refused", refused.getProblem().getCode().getValue())
            : List.of("renewed");
    }

    static List<Settlement> settlements(List<String> tokens, String ended) {
        return List.of(
            new Settlement(new CompleteSettlement().lockToken(tokens.get(0))),
            new Settlement(
                new AbandonSettlement()
                    .lockToken(tokens.get(1))
                    .delaySeconds(600.0)
                    .putPropertiesItem("tried", true)),
            new Settlement(new DeadLetterSettlement().lockToken(tokens.get(2)).reason("no-such-article")),
            new Settlement(new RenewSettlement().lockToken(tokens.get(3))),
            new Settlement(new DeferSettlement().lockToken(ended)));
    }

    SendAnswer send(SendMessage message) throws ApiException {
        return messages.sendMessage(queue, message, null, null);
    }

    /** Receives one message, waiting for it. */
    ReceivedMessage receiveOne() throws ApiException {
        return receive(new ReceiveMessages().waitSeconds(20.0)).get(0);
    }

    void run() throws Exception {
        queues.putQueue(queue, new QueueSettingsBody().lockDurationSeconds(600.0), null, null, null);
        Map<String, Object> found = new LinkedHashMap<>();

        SendMessage message = new SendMessage().body(body()).properties(properties());
        SendAnswer sent = messages.sendMessage(queue, message, null, null);
        ReceivedMessage received = receive(new ReceiveMessages().waitSeconds(20.0)).get(0);
        String token = received.getLockToken();
        found.put("same_message", sent.getSequenceNumber().equals(received.getSequenceNumber()));
        found.put("properties", received.getProperties());
        found.put("body", received.getBody());
        LockRenewed renewed = locks.renewLock(queue, token, new RenewLock().lockSeconds(3600.0));
        found.put("renewed", renewed.getLockRemainingMs() > 600_000);
        found.put("completed", locks.completeLock(queue, token, null).getOutcome().getValue());
        Problem problem = refusal(locks, token);
        found.put("problem", Arrays.asList(problem.getStatus(), problem.getCode().getValue(), problem.getRetryable()));
        Problem newer = refusal(newerLocks, token);
        found.put(
            "newer",
            Arrays.asList(
                newer.getStatus(),
                newer.getCode().getValue(),
                newer.getTitle(),
                newer.getDetail(),
                newer.getRetryable(),
                newer.getRetryAfter()));

        List<MessageToSend> numbers =
            IntStream.range(0, 4).mapToObj(number -> new MessageToSend().body(number)).collect(Collectors.toList());
        messages.sendBatch(queue, new SendBatch().messages(numbers), null, null);
        List<String> tokens =
            receive(new ReceiveMessages().maxMessages(4).waitSeconds(20.0)).stream()
                .map(ReceivedMessage::getLockToken)
                .collect(Collectors.toList());
        SettleMessages batch = new SettleMessages().settlements(settlements(tokens, token));
        List<SettlementResult> results = locks.settleMessages(queue, batch).getResults();
        found.put("results", results.stream().map(Program::summary).collect(Collectors.toList()));

        found.put("none", receive(new ReceiveMessages().waitSeconds(0.1)).size());
        CompletableFuture<ReceivedMessage> waiting =
            CompletableFuture.supplyAsync(
                () -> {
                    try {
                        return receiveOne();
                    } catch (ApiException refused) {
                        throw new IllegalStateException(refused);
                    }
                });
        send(new SendMessage().body("wake"));
        ReceivedMessage woken = waiting.get();
        found.put("woken", woken.getBody());
        DeadLetterLock unreadable = new DeadLetterLock().reason("unreadable");
        SettlementDone deadLettered = locks.deadLetterLock(queue, woken.getLockToken(), unreadable);
        found.put("dead_lettered", deadLettered.getOutcome().getValue());
        List<MessageState> states = List.of(MessageState.DEAD_LETTERED);
        MessagePage browsed = messages.browseMessages(queue, null, null, states, null);
        found.put(
            "browsed",
            browsed.getItems().stream()
                .map(one -> Arrays.asList(one.getBody(), one.getDeadLetterReason()))
                .collect(Collectors.toList()));

        send(new SendMessage().body("later"));
        ReceivedMessage early = receiveOne();
        SettlementDone deferred = locks.deferLock(queue, early.getLockToken(), null);
        ReceiveMessages byNumber = new ReceiveMessages().addSequenceNumbersItem(early.getSequenceNumber());
        ReceivedMessage late = receive(byNumber).get(0);
        found.put("deferred", Arrays.asList(deferred.getOutcome().getValue(), late.getBody()));

        String transaction = transactions.startTransaction(null).getId();
        CompleteLock completion = new CompleteLock().transactionId(transaction);
        SettlementDone pending = locks.completeLock(queue, late.getLockToken(), completion);
        SendAnswer uncommitted = send(new SendMessage().body("paid").transactionId(transaction));
        CommittedTransaction committed = transactions.commitTransaction(transaction, null);
        found.put(
            "transaction",
            Arrays.asList(
                pending.getPending(),
                uncommitted.getState().getValue(),
                committed.getState().getValue(),
                receiveOne().getBody()));
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }
}
