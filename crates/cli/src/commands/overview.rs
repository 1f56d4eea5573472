//! How a cluster stands: `forebay status --meta`, `forebay meta status`.
//!
//! One server says which servers and volumes there are; what a volume's owner alone knows of it, the owner is asked.

use std::{collections::BTreeMap, process::ExitCode, thread};

use forebay_protocol::{ClientStatus, Kind, MemberStatus, Overview, OwnerDetail, VolumeStatus};
use serde_json::{Value, json};

use super::servers::Servers;
use crate::{args::ServersArgs, duration, error::CliError, output, size::human, table::table};

/// Shows it, for people or as JSON.
pub(super) fn show(args: &ServersArgs, as_json: bool) -> Result<ExitCode, CliError> {
    let servers = Servers::of(args)?;
    let first: Overview = servers.ask(Kind::Overview, Vec::new())?;
    let others = ask_others(&servers, &first);
    let cluster = Cluster::of(first, others);
    if as_json {
        output::line(&format_args!("{:#}", cluster.json()));
    } else {
        output::out(&cluster.text());
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the other servers that live, all at once.
fn ask_others(servers: &Servers, first: &Overview) -> BTreeMap<String, Result<Overview, String>> {
    let others = first.members.iter().filter(|member| member.alive && member.address != first.server);
    thread::scope(|scope| {
        let asking = others.map(|member| {
            let address = member.address.as_str();
            (address, scope.spawn(move || servers.ask_one::<Overview>(address, Kind::Overview, &[])))
        });
        let asking: Vec<_> = asking.collect();
        let said = asking.into_iter().map(|(address, said)| {
            let said = said.join().map_err(|_| "asking it panicked".to_owned());
            (address.to_owned(), said.and_then(|said| said.map_err(|error| error.to_string())))
        });
        said.collect()
    })
}

/// A server, and what it said if it was asked.
struct Server {
    member: MemberStatus,
    said: Option<Result<Overview, String>>,
}

/// What all servers said together.
struct Cluster {
    asked: String,
    engine: String,
    servers: Vec<Server>,
    volumes: Vec<VolumeStatus>,
}

impl Cluster {
    fn of(first: Overview, mut others: BTreeMap<String, Result<Overview, String>>) -> Cluster {
        let (asked, engine, members) = (first.server.clone(), first.engine.clone(), first.members.clone());
        let mut volumes: BTreeMap<String, VolumeStatus> =
            first.volumes.iter().map(|volume| (volume.name.clone(), volume.clone())).collect();
        for volume in others.values().flatten().flat_map(|said| &said.volumes) {
            let known = volumes.entry(volume.name.clone()).or_insert_with(|| volume.clone());
            // While a volume changes its owner two may say that it is theirs: the later one is right.
            if (volume.epoch, volume.detail.is_some()) > (known.epoch, known.detail.is_some()) {
                *known = volume.clone();
            }
        }
        others.insert(asked.clone(), Ok(first));
        let servers = members.into_iter();
        let servers = servers.map(|member| Server { said: others.remove(&member.address), member }).collect();
        Cluster { asked, engine, servers, volumes: volumes.into_values().collect() }
    }

    fn owned<'a>(&'a self, address: &'a str) -> impl Iterator<Item = &'a OwnerDetail> {
        self.volumes
            .iter()
            .filter(move |volume| volume.owner == address)
            .filter_map(|volume| volume.detail.as_ref())
    }

    /// What a batch took the engine lately at this server, in microseconds.
    fn commit_us(&self, address: &str) -> Option<u64> {
        self.owned(address).filter(|detail| detail.batches > 0).map(|detail| detail.commit_us).max()
    }

    fn json(&self) -> Value {
        let servers = self.servers.iter().map(|server| {
            let MemberStatus { id, address, alive, release } = &server.member;
            json!({
                "id": id,
                "address": address,
                "alive": alive,
                "release": release,
                "uptime_s": server.overview().map(|said| said.uptime_ms / 1000),
                "volumes": server.overview().map(|_| self.owned(address).count()),
                "commit_us": self.commit_us(address),
                "error": server.error(),
            })
        });
        let volumes = self.volumes.iter().map(|volume| {
            let detail = volume.detail.as_ref();
            json!({
                "name": volume.name,
                "owner": Some(&volume.owner).filter(|owner| !owner.is_empty()),
                "epoch": volume.epoch,
                "sessions": detail.map(|detail| detail.clients.len()),
                "clients": detail.map(|detail| detail.clients.iter().map(client_json).collect::<Vec<_>>()),
                "waiting": detail.map(|detail| detail.waiting),
                "batches": detail.map(|detail| detail.batches),
                "commit_us": detail.map(|detail| detail.commit_us),
                "used_bytes": detail.map(|detail| detail.used),
                "limit_bytes": detail.and_then(|detail| detail.limit),
            })
        });
        json!({
            "server": self.asked,
            "engine": self.engine,
            "servers": servers.collect::<Vec<_>>(),
            "volumes": volumes.collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("engine  {}\n\n{}\n", self.engine, self.server_table());
        if self.volumes.is_empty() {
            text.push_str("there are no volumes: `forebay volume create` makes one\n");
            return text;
        }
        text.push_str(&self.volume_table());
        let clients = self.client_table();
        if !clients.is_empty() {
            text.push('\n');
            text.push_str(&clients);
        }
        for server in &self.servers {
            if let Some(error) = server.error() {
                text.push_str(&format!("\n{} was not heard: {error}\n", server.member.address));
            }
        }
        text
    }

    fn server_table(&self) -> String {
        let row = |server: &Server| {
            let MemberStatus { address, release, .. } = &server.member;
            let said = server.overview();
            let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            [
                address.clone(),
                server.state().to_owned(),
                known(said.map(|said| duration::human(said.uptime_ms / 1000))),
                known(said.map(|_| self.owned(address).count().to_string())),
                known(self.commit_us(address).map(milliseconds)),
                release.clone(),
            ]
        };
        let rows: Vec<_> = self.servers.iter().map(row).collect();
        table(["SERVER", "STATE", "FOR", "VOLUMES", "COMMIT", "RELEASE"], &rows)
    }

    fn volume_table(&self) -> String {
        let row = |volume: &VolumeStatus| {
            let known = |say: &dyn Fn(&OwnerDetail) -> String| {
                volume.detail.as_ref().map_or_else(|| "-".to_owned(), say)
            };
            [
                volume.name.clone(),
                if volume.owner.is_empty() { "nobody".to_owned() } else { volume.owner.clone() },
                volume.epoch.to_string(),
                known(&|detail| detail.clients.len().to_string()),
                known(&|detail| detail.waiting.to_string()),
                known(&|detail| match detail.limit {
                    Some(limit) => format!("{} of {}", human(detail.used), human(limit)),
                    None => human(detail.used),
                }),
            ]
        };
        let rows: Vec<_> = self.volumes.iter().map(row).collect();
        table(["VOLUME", "OWNER", "EPOCH", "CLIENTS", "WAITING", "USED"], &rows)
    }

    /// One line a client; its own name, which may be long, comes last.
    fn client_table(&self) -> String {
        let rows = self.volumes.iter().flat_map(|volume| {
            let clients = volume.detail.iter().flat_map(|detail| &detail.clients);
            clients.map(|client| {
                [
                    volume.name.clone(),
                    client.address.clone().unwrap_or_else(|| "not connected".to_owned()),
                    format!("{:.1} s ago", client.heard_ms as f64 / 1000.0),
                    client.leases.to_string(),
                    client.name.clone(),
                ]
            })
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            String::new()
        } else {
            table(["VOLUME", "CLIENT AT", "HEARD", "LEASES", "CLIENT"], &rows)
        }
    }
}

impl Server {
    fn overview(&self) -> Option<&Overview> {
        self.said.as_ref().and_then(|said| said.as_ref().ok())
    }

    fn error(&self) -> Option<&str> {
        self.said.as_ref().and_then(|said| said.as_ref().err()).map(String::as_str)
    }

    fn state(&self) -> &'static str {
        match (&self.said, self.member.alive) {
            (Some(Ok(_)), _) => "serves",
            // It beats in the engine, and is not reached from here.
            (_, true) => "not reached",
            (_, false) => "silent",
        }
    }
}

fn client_json(client: &ClientStatus) -> Value {
    json!({
        "name": client.name,
        "address": client.address,
        "heard_ms": client.heard_ms,
        "leases": client.leases,
    })
}

fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(address: &str, alive: bool) -> MemberStatus {
        MemberStatus { id: "1".to_owned(), address: address.to_owned(), alive, release: "0.1.0".to_owned() }
    }

    fn overview(server: &str, owner: &str, epoch: u64) -> Overview {
        let client = ClientStatus {
            name: "node1:/data".to_owned(),
            address: Some("10.0.0.41:40000".to_owned()),
            heard_ms: 1234,
            leases: 12,
        };
        let detail = OwnerDetail {
            clients: vec![
                client.clone(),
                ClientStatus { address: None, name: "node2:/data".to_owned(), ..client },
            ],
            batches: 5,
            commit_us: 4321,
            used: 3 << 20,
            limit: Some(1 << 30),
            ..OwnerDetail::default()
        };
        let volume = VolumeStatus {
            name: "shared".to_owned(),
            owner: owner.to_owned(),
            epoch,
            detail: (server == owner).then_some(detail),
        };
        Overview {
            server: server.to_owned(),
            engine: "postgres://forebay@db/forebay".to_owned(),
            uptime_ms: 3_700_000,
            members: vec![
                member("a:7300", true),
                member("b:7300", true),
                member("c:7300", true),
                member("d:7300", false),
            ],
            volumes: vec![volume],
        }
    }

    #[test]
    fn what_only_the_owner_knows_is_asked_of_the_owner() {
        let others = [
            ("b:7300".to_owned(), Ok(overview("b:7300", "b:7300", 7))),
            ("c:7300".to_owned(), Err("no answer".to_owned())),
        ];
        let cluster = Cluster::of(overview("a:7300", "a:7300", 6), others.into());
        let text = "engine  postgres://forebay@db/forebay

SERVER  STATE        FOR      VOLUMES  COMMIT  RELEASE
a:7300  serves       1 h 1 min  0        -       0.1.0
b:7300  serves       1 h 1 min  1        4.3 ms  0.1.0
c:7300  not reached  -          -        -       0.1.0
d:7300  silent       -          -        -       0.1.0

VOLUME  OWNER   EPOCH  CLIENTS  WAITING  USED
shared  b:7300  7      2        0        3.00 MiB of 1.00 GiB

VOLUME  CLIENT AT        HEARD      LEASES  CLIENT
shared  10.0.0.41:40000  1.2 s ago  12      node1:/data
shared  not connected    1.2 s ago  12      node2:/data

c:7300 was not heard: no answer
";
        assert_eq!(cluster.text(), text.replace("FOR      ", "FOR        "));
        let json = cluster.json();
        assert_eq!(json["volumes"][0]["owner"], "b:7300", "the later one is right");
        assert_eq!(json["volumes"][0]["clients"][1]["address"], Value::Null);
        assert_eq!(
            (&json["servers"][0]["volumes"], &json["servers"][3]["volumes"]),
            (&json!(0), &Value::Null)
        );
    }
}
