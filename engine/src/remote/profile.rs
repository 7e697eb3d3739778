//! The profiles of the AWS command line: keys, region and endpoint from its two files.
//!
//! `object_store` knows the environment, roles and the metadata of a machine, but not these files.

use std::env;
use std::path::PathBuf;

use crate::error::Error;
use crate::storage::Storage;
use crate::storage::os::OsStorage;

/// What a profile says.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) key: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl Profile {
    /// The profile that `AWS_PROFILE` names, or `default`. Files that are not there say nothing.
    ///
    /// # Errors
    /// [`Error::Io`] where a file cannot be read.
    pub(crate) fn load() -> Result<Self, Error> {
        let name = env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned());
        let mut profile = Self::default();
        for (variable, file, prefix) in
            [("AWS_CONFIG_FILE", "config", "profile "), ("AWS_SHARED_CREDENTIALS_FILE", "credentials", "")]
        {
            let of_home = || Some(PathBuf::from(env::var_os("HOME")?).join(".aws").join(file));
            let Some(path) = env::var_os(variable).map(PathBuf::from).or_else(of_home) else { continue };
            if let Some(bytes) = OsStorage.read(&path)? {
                profile.add(&String::from_utf8_lossy(&bytes), &name, prefix);
            }
        }
        Ok(profile)
    }

    /// Takes what the section of a profile says.
    fn add(&mut self, text: &str, name: &str, prefix: &str) {
        let mut is_ours = false;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                let section = section.trim();
                is_ours = section.strip_prefix(prefix).is_some_and(|rest| rest.trim() == name)
                    || (name == "default" && section == name);
                continue;
            }
            let Some((field, value)) = line.split_once('=').filter(|_| is_ours && !line.starts_with('#'))
            else {
                continue;
            };
            let place = match field.trim() {
                "aws_access_key_id" => &mut self.key,
                "aws_secret_access_key" => &mut self.secret,
                "aws_session_token" => &mut self.token,
                "region" => &mut self.region,
                "endpoint_url" => &mut self.endpoint,
                _ => continue,
            };
            *place = Some(value.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_of_the_profile_counts() {
        let mut profile = Profile::default();
        let config = "[default]\nregion = eu-north-1\n[profile other]\n# region = x\nregion=us-west-2\nendpoint_url = http://h:1\n";
        profile.add(config, "other", "profile ");
        let credentials = "[default]\naws_access_key_id = no\n\n[other]\naws_access_key_id = yes\naws_secret_access_key=s=1\n";
        profile.add(credentials, "other", "");
        assert_eq!(profile.region.as_deref(), Some("us-west-2"));
        assert_eq!(profile.endpoint.as_deref(), Some("http://h:1"));
        assert_eq!((profile.key.as_deref(), profile.secret.as_deref()), (Some("yes"), Some("s=1")));
        let mut default = Profile::default();
        default.add(config, "default", "profile ");
        assert_eq!((default.region.as_deref(), default.token), (Some("eu-north-1"), None));
    }
}
