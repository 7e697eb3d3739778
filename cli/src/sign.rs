//! Keys of minisign on the command line: whose generations are believed, and what is pushed under which name.

use std::env;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use icecore::remote::{PublicKey, PushOptions, SigningKey};

use crate::encoding::quoted;
use crate::exit::Failure;

/// Has the password of a secret key, for those who run a command without a terminal. Arguments are seen by every user of the machine.
const PASSWORD: &str = "ICECORE_SIGN_PASSWORD";

/// How a push signs.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SignArgs {
    /// Sign with this secret key of minisign; its password is prompted for, or comes from `ICECORE_SIGN_PASSWORD`
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Publish also where another key signed the newest generation, or where it is signed and this push is not
    #[arg(long)]
    allow_signer_change: bool,
}

impl SignArgs {
    /// Whether anything was said of it.
    pub(crate) fn is_given(&self) -> bool {
        self.sign.is_some() || self.allow_signer_change
    }

    /// Has a push sign as the command line says. Asks for a password where the key has one.
    ///
    /// # Errors
    /// The key cannot be read or used.
    pub(crate) fn apply(&self, options: PushOptions) -> Result<PushOptions, Failure> {
        let options = options.allow_signer_change(self.allow_signer_change);
        let Some(path) = &self.sign else { return Ok(options) };
        let text = read(path)?;
        let password = if SigningKey::needs_password(&text) { Some(password(path)?) } else { None };
        Ok(options.sign(SigningKey::parse(&text, password.as_deref())?))
    }
}

/// No file with a key is as long, in bytes.
const FILE_MAX: u64 = 1 << 16;

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |source| Failure::File { operation: "read", path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(FILE_MAX).read_to_string(&mut text)).map_err(failed)?;
    Ok(text)
}

fn password(path: &Path) -> Result<String, Failure> {
    match env::var(PASSWORD) {
        Ok(password) => Ok(password),
        Err(env::VarError::NotUnicode(_)) => Err(Failure::usage(format!("{PASSWORD} is not UTF-8"))),
        Err(env::VarError::NotPresent) => {
            rpassword::prompt_password(format!("Password of {}: ", path.display())).map_err(|_| {
                let reason = "has a password, and there is no terminal to ask for it";
                Failure::usage(format!("{} {reason}: set {PASSWORD}", path.display()))
            })
        }
    }
}

/// Reads a public key: the key itself, or the file that has it.
///
/// # Errors
/// There is no such file, or no key in it.
pub(crate) fn public_key(given: &str) -> Result<PublicKey, Failure> {
    if let Ok(key) = given.parse() {
        return Ok(key);
    }
    let path = Path::new(given);
    if !path.exists() {
        return Err(Failure::usage(format!(
            "{} is neither a public key of minisign nor a file with one",
            quoted(given)
        )));
    }
    Ok(read(path)?.parse()?)
}
