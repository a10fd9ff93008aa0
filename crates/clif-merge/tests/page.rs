//! Placeholder.
use headless_chrome as _;
