//! A headless Chromium, driven as a person would: keys, clicks, and what is then to be seen.
//!
//! Whatever the page reports or requests is recorded. A test without a browser fails.

use headless_chrome::browser::tab::ModifierKey;
use headless_chrome::protocol::cdp::types::Event;
use headless_chrome::protocol::cdp::{Emulation, Network, Runtime};
use headless_chrome::{Browser, LaunchOptions, Tab};
use serde_json::{Value, from_value, json};
use std::ffi::OsStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long something may take that must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub struct Page {
    tab: Arc<Tab>,
    /// Errors, messages of the console, and requests but those for the page.
    reported: Arc<Mutex<Vec<String>>>,
    _browser: Browser,
    _profile: TempDir,
}

/// Options beyond those with which the crate starts a browser.
const OPTIONS: [&str; 3] = ["--disable-quic", "--disable-component-update", "--hide-scrollbars"];

impl Page {
    /// Starts a browser, and opens `url` in it once `prepare` is done.
    pub fn open(url: &str, prepare: impl FnOnce(&Page)) -> Page {
        let profile = tempfile::tempdir().expect("a temporary directory");
        let options = LaunchOptions::default_builder()
            .sandbox(false)
            .window_size(Some((1280, 900)))
            .user_data_dir(Some(profile.path().to_owned()))
            .idle_browser_timeout(PATIENCE)
            .args(OPTIONS.map(OsStr::new).to_vec())
            .build()
            .expect("options");
        let browser = Browser::new(options).expect("Chromium, which tests/setup installs");
        let tab = browser.new_tab().expect("a tab");
        tab.set_default_timeout(PATIENCE);
        let reported = Arc::new(Mutex::new(Vec::new()));
        let page = Page { tab, reported, _browser: browser, _profile: profile };
        page.record();
        prepare(&page);
        page.tab.navigate_to(url).expect("a page");
        page.tab.wait_until_navigated().expect("a page");
        page
    }

    fn record(&self) {
        self.tab.enable_log().expect("the log");
        self.tab.enable_runtime().expect("the runtime");
        let network: Network::Enable = from_value(json!({})).expect("a call");
        self.tab.call_method(network).expect("the network");
        let reported = Arc::clone(&self.reported);
        let listener = move |event: &Event| {
            let what = match event {
                Event::RuntimeExceptionThrown(event) => format!("exception: {event:?}"),
                Event::RuntimeConsoleAPICalled(event) => format!("console: {event:?}"),
                Event::LogEntryAdded(event) => format!("log: {event:?}"),
                Event::NetworkRequestWillBeSent(event) => {
                    format!("request: {}", event.params.request.url)
                }
                _ => return,
            };
            reported.lock().expect("not poisoned").push(what);
        };
        self.tab.add_event_listener(Arc::new(listener)).expect("a listener");
    }

    /// The reports and requests.
    pub fn reported(&self) -> Vec<String> {
        self.reported.lock().expect("not poisoned").clone()
    }

    /// The value of an expression.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        let wrapped = format!("JSON.stringify({expression})");
        let call: Runtime::Evaluate =
            from_value(json!({ "expression": wrapped, "returnByValue": true })).expect("a call");
        let returned = self.tab.call_method(call).expect("an answer");
        assert!(returned.exception_details.is_none(), "{expression}: {returned:?}");
        match returned.result.value {
            Some(Value::String(text)) => serde_json::from_str(&text).expect("JSON"),
            _ => Value::Null,
        }
    }

    /// A number.
    #[track_caller]
    pub fn number(&self, expression: &str) -> u64 {
        self.value(expression).as_u64().unwrap_or_else(|| panic!("{expression} is no number"))
    }

    /// A text.
    #[track_caller]
    pub fn text(&self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is no text: {value}")).to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != Value::Bool(true) {
            assert!(start.elapsed() < PATIENCE, "{expression}: {:#?}", self.reported());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the script of the page has run.
    #[track_caller]
    pub fn wait_until_ready(&self) {
        self.wait("'ready' in document.documentElement.dataset");
    }

    /// Presses a key.
    pub fn press(&self, key: &str) {
        self.tab.press_key(key).expect("a key");
    }

    /// Presses a key with Shift.
    pub fn press_with_shift(&self, key: &str) {
        self.tab.press_key_with_modifiers(key, Some(&[ModifierKey::Shift])).expect("a key");
    }

    /// Presses the keys of a text.
    pub fn type_text(&self, text: &str) {
        self.tab.type_str(text).expect("keys");
    }

    /// Clicks the element that a selector finds.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let element = self.tab.find_element(selector);
        element.unwrap_or_else(|_| panic!("no {selector}")).click().expect("a click");
    }

    /// Makes the window as large as that of a phone.
    pub fn be_a_phone(&self) {
        let phone =
            json!({ "width": 390, "height": 844, "deviceScaleFactor": 1.0, "mobile": true });
        let call: Emulation::SetDeviceMetricsOverride = from_value(phone).expect("a call");
        self.tab.call_method(call).expect("a phone");
    }

    /// Runs no script of the page.
    pub fn disable_scripts(&self) {
        let call = Emulation::SetScriptExecutionDisabled { value: true };
        self.tab.call_method(call).expect("no scripts");
    }
}
