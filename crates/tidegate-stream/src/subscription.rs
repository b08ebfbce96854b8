//! Messages on channels of Redis, over one connection.

use std::time::Duration;

use fred::{
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::{ClientLike, EventInterface, PubsubInterface},
    types::{Message, Value, config::Server},
};
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{Interval, MissedTickBehavior, interval},
};

use crate::redis::{RedisConnectionSettings, RedisError, open_subscriber};

/// The time after which a connection without messages is checked: it may have ended unnoticed.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The subscription of one connection to channels of Redis. Messages may be lost at any time, so a
/// caller must not depend on them.
#[derive(Debug)]
pub struct Subscription {
    client: Client,
    messages: Receiver<Message>,
    reconnects: Receiver<Server>,
    checks: Interval,
    /// Whether to subscribe to sharded channels, too. Programs publish on them only in a Redis Cluster, from 7.0 on.
    has_shards: bool,
}

/// An event that a subscription reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionEvent {
    /// A message came on the channel with this name.
    Received(String),
    /// Messages were lost, because too many came at once.
    Lagged,
    /// The connection is a new one, without channels. Messages may have been lost.
    Reconnected,
}

impl Subscription {
    /// Opens a connection, without any channel.
    ///
    /// # Errors
    /// As for [`connect_pool`](crate::connect_pool).
    pub async fn open(settings: &RedisConnectionSettings) -> Result<Self, RedisError> {
        let client = open_subscriber(settings).await.map_err(RedisError::new)?;
        let (messages, reconnects) = (client.message_rx(), client.reconnect_rx());
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { client, messages, reconnects, checks, has_shards: settings.master.is_some() })
    }

    /// Adds channels, and in a cluster the sharded channels with the same names. Redis sends their messages from now on.
    ///
    /// # Errors
    /// If Redis does not answer, or if the Redis user lacks a right.
    pub async fn add(&mut self, channels: &[String]) -> Result<(), RedisError> {
        if channels.is_empty() {
            return Ok(());
        }
        // The client does not wait for the reply to SUBSCRIBE. The reply to PING comes after it; if Redis refuses the
        // channels, PING gets the error.
        let (sent, answered) =
            tokio::join!(self.client.subscribe(channels.to_vec()), self.client.ping::<Value>(None));
        sent.and(answered.map(drop)).map_err(RedisError::new)?;
        for channel in channels {
            if !self.has_shards {
                break;
            }
            match self.client.ssubscribe(channel.as_str()).await {
                Err(error) if error.details().contains("unknown command") => self.has_shards = false,
                subscribed => subscribed.map_err(RedisError::new)?,
            }
        }
        Ok(())
    }

    /// Removes channels, and in a cluster the sharded channels with the same names.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn remove(&self, channels: &[String]) -> Result<(), RedisError> {
        if channels.is_empty() {
            return Ok(());
        }
        self.client.unsubscribe(channels.to_vec()).await.map_err(RedisError::new)?;
        if self.has_shards {
            for channel in channels {
                self.client.sunsubscribe(channel.as_str()).await.map_err(RedisError::new)?;
            }
        }
        Ok(())
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// If the connection ends for good.
    pub async fn next(&mut self) -> Result<SubscriptionEvent, RedisError> {
        loop {
            tokio::select! {
                message = self.messages.recv() => return match message {
                    Ok(message) => Ok(SubscriptionEvent::Received(message.channel.to_string())),
                    Err(RecvError::Lagged(_)) => Ok(SubscriptionEvent::Lagged),
                    Err(RecvError::Closed) => Err(closed()),
                },
                reconnect = self.reconnects.recv() => return match reconnect {
                    Err(RecvError::Closed) => Err(closed()),
                    _ => Ok(SubscriptionEvent::Reconnected),
                },
                // An unanswered check makes the client connect again.
                // The reply does not matter, and another call of `next` may come first.
                _ = self.checks.tick() => {
                    let client = self.client.clone();
                    tokio::spawn(async move { client.ping::<Value>(None).await });
                }
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let client = self.client.clone();
        tokio::spawn(async move { client.quit().await });
    }
}

fn closed() -> RedisError {
    RedisError::new(Error::new(ErrorKind::Canceled, "the connection has ended"))
}
