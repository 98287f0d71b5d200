import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import peeklock.ApiClient;

/** Decode and encode each example of the document with the types of the SDK, and print what became of it. */
public class Examples {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ApiClient().getObjectMapper();
        for (JsonNode one : json.readTree(new File(arguments[0]))) {
            Class<?> type = Class.forName("peeklock.model." + one.get("schema").asText());
            System.out.println(json.writeValueAsString(json.treeToValue(one.get("example"), type)));
        }
    }
}
