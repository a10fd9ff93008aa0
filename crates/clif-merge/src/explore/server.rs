//! A server for one browser on this machine.
//!
//! It listens on the loopback interface only, and answers only requests that name it so: a page of
//! another site whose name was made to lead here (DNS rebinding) has another `Host`, and is
//! refused. It reads no files, takes no data, and knows `GET` alone.

use crate::unfinished;
use anyhow::{Result, anyhow};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tiny_http::{Header, Method, Request, Response};

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// The type of the contents.
    pub kind: &'static str,
    /// The contents.
    pub body: Vec<u8>,
}

/// A server that listens.
pub struct Server {
    server: Arc<tiny_http::Server>,
    address: SocketAddr,
}

impl Server {
    /// Listens on a port of the loopback interface; on any that is free for 0.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn listen(port: u16) -> Result<Server> {
        let server =
            tiny_http::Server::http((Ipv4Addr::LOCALHOST, port)).map_err(|error| anyhow!(error))?;
        let address = server.server_addr().to_ip().expect("an address of the loopback interface");
        Ok(Server { server: Arc::new(server), address })
    }

    /// Where the server is to be reached.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// From now on, a signal that asks the program to end ends [`Server::run`].
    pub fn heed_signals(&self) {
        let server = Arc::clone(&self.server);
        unfinished::end_with(Box::new(move || server.unblock()));
    }

    /// Answers requests until a signal comes. `answer` has the contents of a path, if there is
    /// such.
    pub fn run(&self, policy: &str, answer: &dyn Fn(&str) -> Option<Reply>) {
        for request in self.server.incoming_requests() {
            let (code, reply) = match self.refuses(&request) {
                Some(code) => (code, None),
                None => match answer(request.url()) {
                    Some(reply) => (200, Some(reply)),
                    None => (404, None),
                },
            };
            let reply = reply.unwrap_or_else(|| Reply {
                kind: "text/plain; charset=utf-8",
                body: reason(code).into(),
            });
            let mut response = Response::from_data(reply.body).with_status_code(code);
            for (name, value) in headers(reply.kind, policy) {
                let header = Header::from_bytes(name, value.as_bytes());
                response.add_header(header.expect("a header in ASCII"));
            }
            // A browser that went away is no error.
            let _ = request.respond(response);
        }
    }

    /// The status with which a request is refused, whatever it asks for.
    fn refuses(&self, request: &Request) -> Option<u16> {
        let hosts: Vec<&str> = request
            .headers()
            .iter()
            .filter(|header| header.field.equiv("Host"))
            .map(|header| header.value.as_str())
            .collect();
        let is_own = match hosts[..] {
            [host] => is_loopback(host, self.address.port()),
            _ => false,
        };
        match (is_own, request.method()) {
            (false, _) => Some(403),
            (true, Method::Get) => None,
            (true, _) => Some(405),
        }
    }
}

/// Whether a `Host` is a name of the loopback interface, with this port.
fn is_loopback(host: &str, port: u16) -> bool {
    let Some((name, given)) = host.rsplit_once(':') else { return false };
    given.parse() == Ok(port) && (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost"))
}

fn reason(code: u16) -> &'static str {
    match code {
        403 => "This server answers requests to the loopback interface only.\n",
        405 => "This server knows GET only.\n",
        _ => "There is no such page.\n",
    }
}

/// The headers of every answer.
fn headers<'a>(kind: &'a str, policy: &'a str) -> [(&'static str, String); 6] {
    [
        ("Content-Type", kind.to_owned()),
        ("Content-Security-Policy", format!("{policy}; frame-ancestors 'none'")),
        ("X-Content-Type-Options", "nosniff".to_owned()),
        ("Cross-Origin-Resource-Policy", "same-origin".to_owned()),
        ("Referrer-Policy", "no-referrer".to_owned()),
        ("Cache-Control", "no-store".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_names_of_the_loopback_interface() {
        for host in ["127.0.0.1:80", "localhost:80", "LOCALHOST:80"] {
            assert!(is_loopback(host, 80), "{host}");
        }
        for host in ["", "127.0.0.1", "127.0.0.1:81", "example.com:80", "127.0.0.1.example.com:80"]
        {
            assert!(!is_loopback(host, 80), "{host}");
        }
    }
}
