//! Keys of minisign on the command line: whose generations are believed, and what is pushed under which name.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use icecore::remote::{PublicKey, PushOptions, SigningKey};

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

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |source| Failure::File { operation: "read", path: path.to_owned(), source };
    fs::read_to_string(path).map_err(failed)
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
    Ok(read(Path::new(given))?.parse()?)
}
