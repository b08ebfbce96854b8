//! The OpenAPI document of the gate: `openapi.json`, completed with the form of each problem.

use serde_json::{Map, Value, json};
use tidegate_orders::{
    EventKind, OrderState, ResultKind, ResultState,
    event::{EventOutcome, EventRejection},
    scripts::OfferState,
};

use super::problem::ProblemKind;
use crate::settings::CallerSettings;

const TEMPLATE: &str = include_str!("openapi.json");
/// The member of a template's responses that names the slugs of problems.
const PROBLEMS: &str = "problems";

/// Creates the OpenAPI document of a gate with these settings, as JSON text.
pub fn document(settings: &CallerSettings) -> String {
    let mut document: Value = serde_json::from_str(TEMPLATE).unwrap_or_default();
    for responses in responses_of(&mut document) {
        let slugs = responses.remove(PROBLEMS);
        for slug in slugs.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
            let Some(kind) = kind_of(slug) else { continue };
            let response = responses.entry(kind.status().to_string()).or_insert_with(|| json!({}));
            add_problem(response, kind);
        }
    }
    document["paths"]["/problems/{kind}"]["get"]["parameters"][0]["schema"]["enum"] = slugs().into();
    let schemas = &mut document["components"]["schemas"];
    for (name, words) in enumerations() {
        schemas[name]["enum"] = words.into();
    }
    let types: Vec<String> = slugs().into_iter().map(|slug| format!("/problems/{slug}")).collect();
    schemas["ProblemType"]["enum"] = types.into();
    if settings.user_header.is_some() {
        // A listed proxy names the user.
        schemas["VoucherOrder"]["required"] = json!(["voucherId"]);
        schemas["RegionOrder"]["required"] = json!(["campaignId", "region"]);
        document["paths"]["/orders"]["get"]["parameters"][1]["required"] = json!(false);
    }
    document.to_string()
}

/// Returns the kind of problem with this slug, such as `sold-out`.
pub fn kind_of(slug: &str) -> Option<ProblemKind> {
    ProblemKind::ALL.iter().copied().find(|kind| kind.slug() == slug)
}

/// The words of each schema that is a list of words.
fn enumerations() -> [(&'static str, Vec<&'static str>); 6] {
    let kinds = || EventKind::ALL.into_iter();
    let rejections = EventRejection::ALL.map(EventOutcome::Rejected);
    let outcomes = [EventOutcome::Applied, EventOutcome::Unchanged, EventOutcome::RefundDue];
    let (states, result_kinds) =
        (ResultState::ALL.map(ResultState::word), ResultKind::ALL.map(ResultKind::word));
    [
        ("ResultFilter", result_kinds.into_iter().chain(states).collect()),
        ("OrderState", OrderState::ALL.map(OrderState::word).to_vec()),
        ("OfferState", OfferState::ALL.map(OfferState::word).to_vec()),
        ("EventKind", kinds().map(EventKind::word).collect()),
        ("ReportedKind", kinds().filter(|kind| *kind != EventKind::Expired).map(EventKind::word).collect()),
        ("EventOutcome", outcomes.into_iter().chain(rejections).map(EventOutcome::word).collect()),
    ]
}

fn slugs() -> Vec<&'static str> {
    ProblemKind::ALL.iter().map(|kind| kind.slug()).collect()
}

fn responses_of(document: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut());
    operations.filter_map(|operation| operation.get_mut("responses")?.as_object_mut())
}

/// Adds a problem to a response. Several kinds may share a status, and a status may also have an answer that is no
/// problem.
fn add_problem(response: &mut Value, kind: ProblemKind) {
    let told = response["description"].as_str().unwrap_or_default();
    let told = if told.is_empty() { kind.slug().to_owned() } else { format!("{told}, {}", kind.slug()) };
    response["description"] = told.into();
    let content = &mut response["content"]["application/problem+json"]["schema"];
    if content.is_null() {
        // A condition beside the reference restricts the types. Code generators ignore conditions, so that they make one
        // class of all problems.
        *content = json!({
            "$ref": "#/components/schemas/Problem",
            "if": { "required": ["type"] },
            "then": { "properties": { "type": { "enum": [] } } },
        });
    }
    if let Some(types) = content["then"]["properties"]["type"]["enum"].as_array_mut() {
        types.push(format!("/problems/{}", kind.slug()).into());
    }
    if kind.has_retry_after() {
        let seconds = json!({ "description": "Seconds until the client may send the request again.", "required": true,
            "schema": { "type": "integer", "minimum": 1 } });
        response["headers"]["Retry-After"] = seconds;
    }
    if kind == ProblemKind::NoToken {
        response["headers"]["WWW-Authenticate"] =
            json!({ "required": true, "schema": { "type": "string", "const": "Bearer" } });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidegate_operations::order_progress::OrderProgress;

    use super::*;

    fn whole_document() -> Value {
        serde_json::from_str(&document(&CallerSettings::default())).unwrap()
    }

    #[test]
    fn the_state_of_an_order_has_the_members_that_the_document_has() {
        let progress = OrderProgress::unknown(7.try_into().unwrap());
        let written = serde_json::to_value(progress).unwrap();
        let schema = &whole_document()["components"]["schemas"]["Progress"];
        let written: BTreeSet<&String> = written.as_object().unwrap().keys().collect();
        let described: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(written, described);
        assert_eq!(schema["required"].as_array().map(Vec::len), Some(described.len()));
    }

    #[test]
    fn each_operation_has_an_id_and_each_list_of_words_has_words() {
        let document = whole_document();
        let paths = document["paths"].as_object().unwrap().values();
        let operations: Vec<&Value> = paths.filter_map(Value::as_object).flat_map(Map::values).collect();
        let ids: BTreeSet<&str> = operations.iter().filter_map(|it| it["operationId"].as_str()).collect();
        assert_eq!(ids.len(), operations.len());
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            assert_ne!(schema["enum"].as_array().map(Vec::len), Some(0), "{name}");
        }
    }

    #[test]
    fn the_document_has_every_problem_under_its_status_and_no_other() {
        let mut template: Value = serde_json::from_str(TEMPLATE).unwrap();
        let named: Vec<String> = responses_of(&mut template)
            .filter_map(|responses| responses.get(PROBLEMS)?.as_array().cloned())
            .flatten()
            .map(|slug| slug.as_str().unwrap().to_owned())
            .collect();
        assert!(named.iter().all(|slug| kind_of(slug).is_some()), "{named:?}");
        let mut document = whole_document();
        let mut described = BTreeSet::new();
        for responses in responses_of(&mut document) {
            for (status, answer) in responses {
                let types = &answer["content"]["application/problem+json"]["schema"]["then"];
                let types = types["properties"]["type"]["enum"].as_array().into_iter().flatten();
                described.extend(types.map(|kind| (status.clone(), kind.as_str().unwrap().to_owned())));
            }
        }
        // A client that follows the document never uses a wrong method.
        let kinds = ProblemKind::ALL.iter().filter(|kind| **kind != ProblemKind::WrongMethod);
        let told: BTreeSet<(String, String)> =
            kinds.map(|kind| (kind.status().to_string(), format!("/problems/{}", kind.slug()))).collect();
        assert_eq!(described, told);
    }
}
